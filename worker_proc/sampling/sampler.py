"""One token for each sampling row, and its log-probabilities where asked for."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...kernels import cpu as kernels
from ...kernels.reference import NO_TOKEN, compute_logprobs
from ...protocol.replies import LogprobColumns
from ...protocol.steps import NewRow, RowError
from ..guided import GuideError, Guides
from ..logprob_columns import LogprobWriter
from ..rows import Int64s, RowTable
from .columns import ParameterColumns


class Drawn(NamedTuple):
    """What a step drew for its S sampling rows."""

    tokens: NDArray[np.int64]
    """[S], -1 for a row without a distribution."""
    logprobs: LogprobColumns | None
    """Of the tokens that are not -1, in their order."""
    errors: dict[int, RowError]
    """Why a row has no token, where more is known than that."""


class Masked:
    """The logits of a step, without the tokens that the grammars of its rows rule out.

    Attributes:
        logits: [S, vocab_size]; those of the model where no row is guided.
        errors: by row, why it cannot be guided.
    """

    def __init__(self, logits: Tensor, rows: Int64s, guides: Guides) -> None:
        self.logits = logits
        self.errors: dict[int, RowError] = {}
        self._guides = guides
        self._drawing: list[tuple[int, int]] = []  # line and row that draw under a mask
        self._ended: list[tuple[int, int]] = []
        self._failed: list[int] = []  # lines
        if guides:
            self._apply(rows)

    def settle(self, tokens: Tensor) -> None:
        """Correct the drawn tokens [S] where a grammar has ended or failed, and tell the grammars the others.

        The end is drawn whatever else the row has ruled out: nothing else is left.
        """
        for line in self._failed:
            tokens[line] = NO_TOKEN
        for line, _ in self._ended:
            tokens[line] = self._guides.end_token
        for line, row in self._drawing:
            if (token := int(tokens[line])) >= 0:
                self._guides.advance(row, token)

    def _apply(self, rows: Int64s) -> None:
        guided = [(line, row) for line, row in enumerate(rows.tolist()) if row in self._guides]
        mask = np.zeros((len(guided), self._guides.num_words), np.int32)
        for (line, row), words in zip(guided, mask, strict=True):
            try:
                ended = self._guides.fill(row, words)
            except GuideError as error:
                self.errors[row] = RowError(row, str(error), param="structured_outputs")
                self._failed.append(line)
                words.fill(-1)
                continue
            (self._ended if ended else self._drawing).append((line, row))
        if guided:
            self.logits = self.logits.to(torch.float32, copy=True)
            lines = torch.tensor([line for line, _ in guided])
            kernels.apply_bitmask(self.logits, lines, torch.from_numpy(mask))


class Sampler:
    """Parameters of all rows, and the draw."""

    def __init__(
        self, table: RowTable, vocab_size: int, eos_token_ids: tuple[int, ...], *, tokenizer_path: str = ""
    ) -> None:
        """`tokenizer_path` is that of the tokenizer.json that grammars are compiled for."""
        self._columns = ParameterColumns(table, vocab_size, eos_token_ids)
        self._guides = Guides(tokenizer_path, vocab_size, eos_token_ids)

    def add(self, new: NewRow) -> None:
        """A row was taken."""
        self._columns.add(new)
        self._guides.add(new)

    def release(self, row: int) -> None:
        """A row became free."""
        self._columns.release(row)
        self._guides.release(row)

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
        guided = Masked(logits, rows, self._guides)
        tokens = kernels.sample(guided.logits, index, torch.from_numpy(positions), columns, greedy=greedy)
        guided.settle(tokens)
        if columns.penalties is not None:
            self._columns.penalties.count(rows, tokens)
        return Drawn(tokens.numpy(), self._logprobs(logits, rows, tokens), guided.errors)

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
