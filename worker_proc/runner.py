"""What the loop needs from a device: execute a plan, forget all rows."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..protocol.lifecycle import KVGroup
from ..protocol.replies import LogprobColumns
from ..protocol.steps import RowError, StepPlan

Int32s = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What a step drew, in the plan's order."""

    rows: Int32s  # [S]
    tokens: Int32s  # [S]
    device_ms: float
    logprobs: LogprobColumns | None = None
    errors: tuple[RowError, ...] = ()


class Runner(Protocol):
    """A loaded model on a device."""

    kv_groups: tuple[KVGroup, ...]
    max_num_seqs: int
    max_num_batched_tokens: int
    vocab_size: int

    def execute(self, plan: StepPlan) -> StepOutput:
        """Apply the plan's diffs in their order, compute the step and return what it drew.

        A fault of one row is an entry of `errors`; any exception means that the device cannot go on.
        """

    def forget(self) -> None:
        """Release all rows: the next plan comes from a scheduler that knows none of them."""
