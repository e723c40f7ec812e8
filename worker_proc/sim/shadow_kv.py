"""The shadow KV: each slot stores the running digest of a row's tokens up to the one written there.

    digest(p) = digest(p - 1) * A + token(p) * B + C        modulo 2^64, digest(-1) = group

`digest(p - 1)` is read back through the row's block table, and what a row "attends to" is a sum over all its
visible slots. A block that is wrong, stale, shared too early or written by another row changes both.
"""

import numpy as np
from numpy.typing import NDArray

from ..rows import Int64s, RowTable, StepInputs

UInt64s = NDArray[np.uint64]

_A = np.uint64(0x9E3779B97F4A7C15)
_A_INVERSE = np.uint64(pow(int(_A), -1, 2**64))
_B = np.uint64(0xD1342543DE82EF95)
_C = np.uint64(0x2545F4914F6CDD1D)
_UNWRITTEN = np.uint64(0xDEADBEEFDEADBEEF)


def mix(x: UInt64s) -> UInt64s:
    """A bijection of 64-bit numbers in which every output bit depends on all input bits.

    Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators" (SplitMix64).
    """
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class ShadowKV:
    """One digest for each KV slot of each group."""

    def __init__(self, table: RowTable) -> None:
        self._table = table
        self._digests: tuple[UInt64s, ...] = tuple(
            np.full(group.num_blocks * group.block_size, _UNWRITTEN) for group in table.groups
        )

    def write(self, inputs: StepInputs) -> None:
        """Write the digests of a step's tokens, all groups."""
        terms = inputs.token_ids.astype(np.uint64) * _B + _C
        for group, (digests, slots) in enumerate(zip(self._digests, inputs.slots, strict=True)):
            before = np.full(len(inputs.rows), np.uint64(group))
            going_on = inputs.start.nonzero()[0]
            previous = self._table.slots(group, inputs.rows[going_on], inputs.start[going_on] - 1)
            before[going_on] = digests[previous]
            one_each = len(terms) == len(before)
            digests[slots] = before * _A + terms if one_each else _run(before, terms, inputs)

    def read(self, inputs: StepInputs) -> UInt64s:
        """What each sampling row sees of its context, [S]."""
        seen = np.zeros(len(inputs.sampled), np.uint64)
        ends = inputs.draw_positions
        for group, (digests, info) in enumerate(zip(self._digests, self._table.groups, strict=True)):
            begins = np.maximum(ends - info.window, 0) if info.window else np.zeros_like(ends)
            rows, positions = _ranges(inputs.sampled_rows, begins, ends)
            visible = digests[self._table.slots(group, rows, positions)]
            terms = mix(visible + positions.astype(np.uint64) * _C)
            lengths = ends - begins
            if len(lengths):
                seen = mix(seen) + np.add.reduceat(terms, np.cumsum(lengths) - lengths)
        return seen


def _run(before: UInt64s, terms: UInt64s, inputs: StepInputs) -> UInt64s:
    """The running digests of rows with any number of tokens."""
    values = np.empty_like(terms)
    for line, (first, count) in enumerate(
        zip(inputs.first.tolist(), inputs.num_tokens.tolist(), strict=True)
    ):
        powers = _A ** np.arange(1, count + 1, dtype=np.uint64)
        # A is odd, so it has an inverse: sum_j A^(k-j) t_j = A^k * sum_j A^-j t_j.
        inverse = _A_INVERSE ** np.arange(1, count + 1, dtype=np.uint64)
        sums = np.cumsum(terms[first : first + count] * inverse, dtype=np.uint64)
        values[first : first + count] = powers * (before[line] + sums)
    return values


def _ranges(rows: Int64s, begins: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
    """(row, position) for all positions from begin to end of each row, flat."""
    lengths = ends - begins
    first = np.cumsum(lengths) - lengths
    return np.repeat(rows, lengths), np.arange(lengths.sum()) + np.repeat(begins - first, lengths)
