"""Log-probabilities of prompt tokens, for the rows that were asked for them."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ...kernels.reference import compute_logprobs
from ...protocol.replies import LogprobColumns
from ...protocol.steps import NewRow, RowPromptLogprobs
from ..logprob_columns import FLOOR
from ..rows import RowTable, StepInputs

_SLICE = 128  # tokens whose logits are in memory at once


class PromptReader:
    """Which rows report on their prompts, and with how many alternatives."""

    def __init__(self, table: RowTable) -> None:
        self._table = table
        self._asked: dict[int, int] = {}

    def add(self, new: NewRow) -> None:
        """A row was taken."""
        self._asked.pop(new.row, None)
        if new.prompt_logprobs >= 0:
            self._asked[new.row] = new.prompt_logprobs

    def read(
        self, inputs: StepInputs, compute_logits: Callable[[Tensor], Tensor]
    ) -> tuple[RowPromptLogprobs, ...]:
        """What a step computes of prompts. `compute_logits` gives those of the step's tokens at index [n]."""
        if not self._asked:
            return ()
        parts = []
        for index, row in enumerate(inputs.rows.tolist()):
            start = int(inputs.start[index])
            # The last token of the prompt is followed by one that is drawn.
            end = min(start + int(inputs.num_tokens[index]), int(self._table.prompt_len[row]) - 1)
            if row in self._asked and start < end:
                targets = self._table.tokens[row, start + 1 : end + 1].astype(np.int64)
                first = int(inputs.first[index])
                columns = _columns(compute_logits, first, torch.from_numpy(targets), self._asked[row])
                parts.append(RowPromptLogprobs(row, start + 1, columns))
        return tuple(parts)


def _columns(
    compute_logits: Callable[[Tensor], Tensor], first: int, targets: Tensor, k: int
) -> LogprobColumns:
    tokens, values, ranks = [], [], []
    for at in range(0, len(targets), _SLICE):
        chosen = targets[at : at + _SLICE]
        found = compute_logprobs(compute_logits(torch.arange(len(chosen)) + first + at), chosen, k)
        tokens.append(torch.cat((chosen.unsqueeze(1), found.top_ids), 1))
        values.append(torch.cat((found.chosen.unsqueeze(1), found.top), 1).clamp(min=FLOOR))
        ranks.append(found.rank)
    return LogprobColumns(
        counts=np.full(len(targets), k + 1, np.int32).tobytes(),
        tokens=torch.cat(tokens).to(torch.int32).numpy().tobytes(),
        values=torch.cat(values).to(torch.float32).numpy().tobytes(),
        ranks=torch.cat(ranks).to(torch.int32).numpy().tobytes(),
    )
