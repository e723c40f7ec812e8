"""The tensors that a step of some size reads and writes, as views of those of the largest."""

from typing import NamedTuple

import torch
from torch import Tensor

from ....kernels.reference import PlanColumns, StepInputs
from ..rows.staging import Staging
from .sizes import BodySize


class StepTensors(NamedTuple):
    """A step of one size."""

    size: BodySize
    columns: PlanColumns
    inputs: StepInputs


class StepBuffers:
    """The inputs of the largest step."""

    def __init__(
        self, staging: Staging, *, max_tokens: int, num_groups: int, device: torch.device | str
    ) -> None:
        max_rows = staging.num_rows

        def longs(size: int) -> Tensor:
            return torch.zeros(size, dtype=torch.int64, device=device)

        self._staging = staging
        self._num_groups = num_groups
        self._token_ids, self._positions = longs(max_tokens), longs(max_tokens)
        self._slots = longs(num_groups * max_tokens)
        self._seq_lens = torch.zeros(max_rows, dtype=torch.int32, device=device)
        self._rows = longs(max_rows)
        self.logit_tokens, self.line_rows, self.line_positions = (longs(max_rows) for _ in range(3))

    def of(self, size: BodySize) -> StepTensors:
        """A step's tensors. It has room for as many lines that draw as it has rows."""
        tokens, rows = size.num_tokens, size.num_rows
        inputs = StepInputs(
            token_ids=self._token_ids[:tokens],
            positions=self._positions[:tokens],
            slots=self._slots[: self._num_groups * tokens].view(self._num_groups, tokens),
            seq_lens=self._seq_lens[:rows],
            rows=self._rows[:rows],
            logit_tokens=self.logit_tokens[:rows],
            line_rows=self.line_rows[:rows],
            line_positions=self.line_positions[:rows],
        )
        return StepTensors(size, self._staging.columns(rows), inputs)
