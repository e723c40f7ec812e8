"""One token for each sampling row, and its log-probabilities where asked for."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...kernels import cpu as kernels
from ...kernels.reference import compute_logprobs
from ...protocol.replies import LogprobColumns
from ...protocol.steps import NewRow
from ..logprob_columns import LogprobWriter
from ..rows import Int64s, RowTable
from .columns import ParameterColumns


class Drawn(NamedTuple):
    """What a step drew for its S sampling rows."""

    tokens: NDArray[np.int64]
    """[S], -1 for a row without a distribution."""
    logprobs: LogprobColumns | None
    """Of the tokens that are not -1, in their order."""


class Sampler:
    """Parameters of all rows, and the draw."""

    def __init__(self, table: RowTable, vocab_size: int, eos_token_ids: tuple[int, ...]) -> None:
        self._columns = ParameterColumns(table, vocab_size, eos_token_ids)

    def add(self, new: NewRow) -> None:
        """A row was taken."""
        self._columns.add(new)

    def release(self, row: int) -> None:
        """A row became free."""
        self._columns.release(row)

    def sample(self, logits: Tensor, rows: Int64s, positions: Int64s) -> Drawn:
        """Draw one token a row.

        Args:
            logits: [S, vocab_size] as the model gave them.
            rows: [S] permanent rows.
            positions: [S] absolute positions of the tokens to be drawn.
        """
        columns = self._columns.select(rows)
        greedy = self._columns.greedy[rows]
        index = torch.from_numpy(rows)
        tokens = kernels.sample(logits, index, torch.from_numpy(positions), columns, greedy=greedy)
        if columns.penalties is not None:
            self._columns.penalties.count(rows, tokens)
        return Drawn(tokens.numpy(), self._logprobs(logits, rows, tokens))

    def _logprobs(self, logits: Tensor, rows: Int64s, tokens: Tensor) -> LogprobColumns | None:
        asked = self._columns.num_logprobs[rows]
        lines = (asked >= 0).nonzero()[0]
        if not len(lines):
            return None
        index = torch.from_numpy(lines)
        found = compute_logprobs(logits[index], tokens[index], int(asked.max()))
        at = {line: place for place, line in enumerate(lines.tolist())}
        chosen, ranks, top, top_ids = (x.tolist() for x in found)
        writer = LogprobWriter()
        for line, token in enumerate(tokens.tolist()):
            if token < 0:
                continue
            place = at.get(line)
            if place is None:
                writer.skip()
                continue
            k = int(asked[line])
            writer.add(token, chosen[place], ranks[place], top_ids[place][:k], top[place][:k])
        return writer.columns()
