"""The sizes that steps are padded to: one captured graph serves all steps of a size."""

from bisect import bisect_left
from typing import NamedTuple

_ROWS = 8  # matrix products are fast from 8 rows on, and not faster below


class BodySize(NamedTuple):
    """What the graph of a step's layers depends on."""

    num_tokens: int
    num_rows: int
    decodes_only: bool  # no row has more than one token: the prompt kernel is left out

    @property
    def lone(self) -> bool:
        """Whether it is a step of one token, which has kernels of its own."""
        return self.num_tokens == 1


class HeadSize(NamedTuple):
    """What the graph from hidden states to tokens depends on."""

    num_lines: int
    filtered: bool
    ruled: bool
    logprobs: bool


class Sizes:
    """Ladders of sizes. From one to the next is an eighth at most, so that little is computed in vain."""

    def __init__(self, max_rows: int, max_tokens: int, max_graph_tokens: int, *, lone_row: bool) -> None:
        self.rows = [1] * lone_row + _ladder(max_rows)
        self.tokens = _ladder(max_tokens)
        self._max_graph_tokens = max_graph_tokens

    def body(self, num_rows: int, num_tokens: int, *, decodes_only: bool) -> BodySize:
        """The size for a step of so many rows and tokens."""
        if decodes_only:
            rows = _fit(self.rows, num_rows)
            return BodySize(rows, rows, True)
        tokens = _fit(self.tokens, num_tokens)
        if tokens > self._max_graph_tokens:
            return BodySize(tokens, _fit(self.rows, max(num_rows, _ROWS)), False)
        # No step of so many tokens has more rows, so that one graph serves them all.
        return BodySize(tokens, min(tokens, self.rows[-1]), False)

    def lines(self, num_lines: int) -> int:
        """The number of lines that draw tokens, with padding."""
        return _fit(self.rows, num_lines)

    def captured(self, size: BodySize) -> bool:
        """Whether a step of this size is short enough for its launches to matter."""
        return size.decodes_only or size.num_tokens <= self._max_graph_tokens

    def bodies(self) -> list[BodySize]:
        """All sizes that are captured, those that serve most first."""
        decodes = [BodySize(rows, rows, True) for rows in self.rows]
        mixed = [
            BodySize(tokens, min(tokens, self.rows[-1]), False)
            for tokens in self.tokens
            if tokens <= self._max_graph_tokens
        ]
        return decodes + mixed


def _ladder(largest: int) -> list[int]:
    """8, 16, 24 ... in steps of 8 up to 128, then of at most an eighth, and at last `largest` rounded up."""
    size, sizes = _ROWS, []
    while size < largest:
        sizes.append(size)
        size += max(_ROWS, 1 << (size.bit_length() - 4))
    return [*sizes, -(-largest // _ROWS) * _ROWS]


def _fit(ladder: list[int], size: int) -> int:
    return ladder[bisect_left(ladder, size)]
