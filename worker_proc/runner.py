"""What the loop needs from a device: start a step, collect its output, forget all rows."""

from abc import abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..protocol.lifecycle import KVGroup
from ..protocol.replies import LogprobColumns
from ..protocol.steps import RowError, RowPromptLogprobs, StepPlan

Int32s = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What a step drew, in the plan's order."""

    rows: Int32s  # [S]
    tokens: Int32s  # [S]
    device_ms: float
    logprobs: LogprobColumns | None = None
    errors: tuple[RowError, ...] = ()
    prompt_logprobs: tuple[RowPromptLogprobs, ...] = ()


class Runner(Protocol):
    """A loaded model on a device.

    A fault of one row is an entry of its step's `errors`; any exception means that the device cannot go on.
    """

    kv_groups: tuple[KVGroup, ...]
    max_num_seqs: int
    max_num_batched_tokens: int
    vocab_size: int

    def submit(self, plan: StepPlan) -> None:
        """Apply the plan's diffs in their order and start the step; steps run in the order they come."""

    def collect(self) -> StepOutput | None:
        """The output of the oldest step not collected yet; None while the device is still at it."""

    def idle(self) -> bool:
        """Do a small part of what serves later steps; False when there is nothing (more) to be done.

        Called while no step is in flight, until a plan arrives.
        """

    def forget(self) -> None:
        """Release all rows: the next plan comes from a scheduler that knows none of them.

        Called while no step is in flight.
        """

    def execute(self, plan: StepPlan) -> StepOutput:
        """Submit a plan and wait for what it draws, for callers that take one step at a time."""


class ImmediateRunner(Runner):
    """A device that has computed a step when `submit` returns."""

    def __init__(self) -> None:
        self._outputs: deque[StepOutput] = deque()

    def submit(self, plan: StepPlan) -> None:
        self._outputs.append(self.execute(plan))

    def collect(self) -> StepOutput | None:
        return self._outputs.popleft() if self._outputs else None

    def idle(self) -> bool:
        return False

    @abstractmethod
    def execute(self, plan: StepPlan) -> StepOutput: ...
