"""Permanent rows: what a worker knows of each running choice, kept up to date by the diffs of plans.

    tokens        [num_rows, max_len]        prompt, then output; entries from num_tokens on are stale
    num_tokens    [num_rows]                 known tokens; a drawn token counts at once
    tables[g]     [num_rows, max_blocks]     KV blocks of group g from position 0 on
    num_blocks[g] [num_rows]                 how many of them the row holds

Everything is NumPy memory that torch can view without a copy. It does not know a model or a sampler.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..protocol.errors import ProtocolError
from ..protocol.lifecycle import KVGroup
from ..protocol.steps import NewRow, StepPlan

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The step of a plan as flat columns: R scheduled rows, T tokens, S rows that sample."""

    rows: Int64s  # [R]
    start: Int64s  # [R] position of the row's first token of this step
    num_tokens: Int64s  # [R]
    first: Int64s  # [R] where the row's tokens begin among the T
    token_rows: Int64s  # [T] permanent row of each token
    positions: Int64s  # [T]
    token_ids: Int32s  # [T]
    slots: tuple[Int64s, ...]  # [T] for each KV group: where the token's keys and values go
    sampled: Int64s  # [S] indexes into the R columns

    @property
    def sampled_rows(self) -> Int64s:
        """[S] permanent rows."""
        return self.rows[self.sampled]

    @property
    def last(self) -> Int64s:
        """[S] where each sampling row's last token stands among the T."""
        return (self.first + self.num_tokens - 1)[self.sampled]

    @property
    def draw_positions(self) -> Int64s:
        """[S] absolute position of each token to be drawn."""
        return (self.start + self.num_tokens)[self.sampled]


class RowTable:
    """All rows of a worker."""

    def __init__(self, num_rows: int, max_len: int, groups: tuple[KVGroup, ...]) -> None:
        self.groups = groups
        # One column more: the token behind the last position of the context may still be drawn.
        self.tokens: Int32s = np.zeros((num_rows, max_len + 1), np.int32)
        self.num_tokens: Int64s = np.zeros(num_rows, np.int64)
        self.prompt_len: Int64s = np.zeros(num_rows, np.int64)
        self.tables: tuple[Int32s, ...] = tuple(
            np.zeros((num_rows, -(-max_len // group.block_size)), np.int32) for group in groups
        )
        self.num_blocks: Int64s = np.zeros((len(groups), num_rows), np.int64)
        self._taken = np.zeros(num_rows, np.bool_)

    def taken(self) -> list[int]:
        """The rows that are not free."""
        rows: list[int] = self._taken.nonzero()[0].tolist()
        return rows

    def forget(self) -> None:
        """Release all rows."""
        self._taken[:] = False

    def release(self, rows: Iterable[int]) -> None:
        """Make rows free; what stands in them is overwritten by the next that takes them."""
        for row in rows:
            if not self._taken[row]:
                raise ProtocolError(f"row {row} is released but free")
            self._taken[row] = False

    def add(self, new: NewRow) -> None:
        """Fill a free row."""
        row = new.row
        if self._taken[row]:
            raise ProtocolError(f"row {row} is added but taken")
        if len(new.blocks) != len(self.groups):
            raise ProtocolError(f"row {row} comes with {len(new.blocks)} KV groups, not {len(self.groups)}")
        tokens = np.frombuffer(new.tokens, np.int32)
        self._taken[row] = True
        self.tokens[row, : len(tokens)] = tokens
        self.num_tokens[row] = len(tokens)
        self.prompt_len[row] = new.prompt_len
        for group, column in enumerate(new.blocks):
            blocks = np.frombuffer(column, np.int32)
            self.tables[group][row, : len(blocks)] = blocks
            self.num_blocks[group, row] = len(blocks)

    def append_blocks(self, plan: StepPlan) -> tuple[Int64s, Int64s, Int64s, Int32s]:
        """Put the plan's further blocks behind those their rows hold.

        Returns for each block: its group, its row, its place in the row's table, and its id.
        """
        rows, groups = (
            np.frombuffer(column, np.int32).astype(np.int64)
            for column in (plan.append_row, plan.append_group)
        )
        blocks = np.frombuffer(plan.append_block, np.int32)
        if len(blocks) == 0:
            return groups, rows, groups, blocks
        # Of several blocks of one table, each goes one place behind the one before it.
        tables = groups * self.num_blocks.shape[1] + rows
        order = np.argsort(tables, kind="stable")
        ordered, counted = tables[order], np.arange(len(tables))
        begins = np.r_[True, ordered[1:] != ordered[:-1]]
        behind = np.empty_like(counted)
        behind[order] = counted - np.maximum.accumulate(np.where(begins, counted, 0))
        places = self.num_blocks[groups, rows] + behind
        for group, table in enumerate(self.tables):
            mine = groups == group
            table[rows[mine], places[mine]] = blocks[mine]
        np.add.at(self.num_blocks, (groups, rows), 1)
        return groups, rows, places, blocks

    def inputs(self, plan: StepPlan) -> StepInputs:
        """The step's columns. Raises ProtocolError for a plan that does not fit what the rows hold."""
        rows, start, num_tokens, samples = (
            np.frombuffer(column, np.int32).astype(np.int64)
            for column in (plan.row, plan.start, plan.num_tokens, plan.samples)
        )
        end = start + num_tokens
        self.check(rows, end, samples)
        first = np.cumsum(num_tokens) - num_tokens
        if len(rows) and num_tokens.max() == 1:
            token_rows, positions = rows, start
        else:
            token_rows = np.repeat(rows, num_tokens)
            positions = np.arange(num_tokens.sum()) + np.repeat(start - first, num_tokens)
        return StepInputs(
            rows=rows,
            start=start,
            num_tokens=num_tokens,
            first=first,
            token_rows=token_rows,
            positions=positions,
            token_ids=self.tokens[token_rows, positions],
            slots=tuple(self.slots(group, token_rows, positions) for group in range(len(self.groups))),
            sampled=samples.nonzero()[0],
        )

    def check(self, rows: Int64s, end: Int64s, samples: Int64s) -> None:
        """Raises ProtocolError for a plan that computes `rows` up to `end` when they do not hold as much."""
        known = self.num_tokens[rows]
        wrong = ~self._taken[rows] | (end > known) | ((samples == 1) & (end != known))
        for group, info in zip(self.num_blocks, self.groups, strict=True):
            wrong |= end > group[rows] * info.block_size
        if wrong.any():
            line = int(wrong.argmax())
            row = int(rows[line])
            raise ProtocolError(
                f"the plan computes row {row} up to {end[line]}, but the row "
                f"{'holds' if self._taken[row] else 'is free; it held'} {known[line]} tokens and "
                f"{self.num_blocks[:, row].tolist()} blocks"
            )

    def slots(self, group: int, rows: Int64s, positions: Int64s) -> Int64s:
        """KV slots of positions of rows, through the block table of a group."""
        size = self.groups[group].block_size
        blocks = self.tables[group][rows, positions // size].astype(np.int64)
        return blocks * size + positions % size

    def append_tokens(self, rows: Int64s, tokens: NDArray[np.signedinteger]) -> None:
        """Make drawn tokens known: they are the next step's input."""
        lengths = self.num_tokens[rows]
        self.tokens[rows, lengths] = tokens
        self.num_tokens[rows] = lengths + 1
