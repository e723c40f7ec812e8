"""Taking a plan: into the host's table of rows, and as one copy into the device's."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....protocol.errors import ProtocolError
from ....protocol.steps import NewRow, StepPlan
from ...rows import Int64s, RowTable
from .columns import RECENT, RowColumns
from .parameters import RowTraits, row_values
from .staging import Staging
from .token_lists import ListPool, RowFaultError

Int32s = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class HostStep:
    """What the host must know of a step to launch it and to understand its result."""

    num_rows: int
    num_tokens: int
    decodes_only: bool  # no row has more than one token
    sampled_rows: Int64s  # [S], in the plan's order
    filtered: bool  # some sampling row has min_p, top_k or top_p
    ruled: bool  # some sampling row has token lists or penalties
    num_logprobs: Int32s  # [S], -1 where none are asked for


class Intake:
    """Applies plans to the table, and stages what the device must be told of them.

    The table counts a token as known as soon as its step is taken; which token it is only the device knows.
    """

    def __init__(
        self, table: RowTable, columns: RowColumns, staging: Staging, lists: ListPool, *, max_tokens: int
    ) -> None:
        self._table = table
        self._columns = columns
        self._staging = staging
        self._lists = lists
        self._max_tokens = max_tokens
        self._traits = RowTraits(columns.num_rows)
        self._num_given = np.zeros(columns.num_rows, np.int64)  # tokens that came with the row
        self.faults: dict[int, str] = {}  # rows that cannot be served, until they are released

    def forget(self) -> None:
        """Release all rows."""
        for row in self._table.taken():
            self._lists.release(row)
        self.faults.clear()
        self._table.forget()

    def take(self, plan: StepPlan) -> HostStep:
        """Apply the plan and fill the staging buffer. Raises ProtocolError for a plan that does not fit."""
        self._staging.begin()
        released = np.frombuffer(plan.released, np.int32).tolist()
        self._table.release(released)
        for row in released:
            self._lists.release(row)
            self.faults.pop(row, None)
        for new in plan.new:
            self._table.add(new)
            self._add(new)
        self._append_blocks(plan)
        return self._stage_step(plan)

    def _add(self, new: NewRow) -> None:
        row, staging, columns = new.row, self._staging, self._columns
        if new.params.structured_outputs is not None:
            self.faults[row] = "structured_outputs are not supported on CUDA yet"
        if new.prompt_logprobs >= 0:
            self.faults[row] = "prompt_logprobs are not supported on CUDA yet"
        try:
            lists = self._lists.add(new, staging)
        except RowFaultError as error:
            self.faults[row] = str(error)
            lists = self._lists.add(_plain(new), staging)
        values = row_values(new) | lists
        staging.change(*columns.fields_of(row, values))
        tokens = np.frombuffer(new.tokens, np.int32)
        self._num_given[row] = len(tokens)
        if new.bad_words:
            first = max(new.prompt_len, len(tokens) - RECENT)
            staging.change(*columns.recent_of(row, first, tokens[first:]))
        for group, column in enumerate(new.blocks):
            blocks = np.frombuffer(column, np.int32)
            staging.change(columns.block_addresses(group, row, np.arange(len(blocks))), blocks)
        has_lists = any(lists[f"{name}_count"] for name in ("allowed", "biased", "banned", "words"))
        self._traits.add(new, has_lists=has_lists)

    def _append_blocks(self, plan: StepPlan) -> None:
        groups, rows, places, blocks = self._table.append_blocks(plan)
        if len(blocks):
            self._staging.change(self._columns.block_addresses(groups, rows, places), blocks)

    def _stage_step(self, plan: StepPlan) -> HostStep:
        rows, start, count, samples = (
            np.frombuffer(column, np.int32).astype(np.int64)
            for column in (plan.row, plan.start, plan.num_tokens, plan.samples)
        )
        self._table.check(rows, start + count, samples)
        num_tokens = int(count.sum())
        if num_tokens > self._max_tokens:
            raise ProtocolError(f"the plan has {num_tokens} tokens, more than {self._max_tokens}")
        ids_at = np.full(len(rows), -1, np.int32)
        at = self._staging.write_changes()
        for index in (start < self._num_given[rows]).nonzero()[0].tolist():
            first = int(start[index])
            ids = self._table.tokens[rows[index], first : first + int(count[index])]
            self._staging.write_ids(ids)
            ids_at[index] = at
            at += len(ids)
        drawing = samples == 1
        line = np.where(drawing, np.cumsum(drawing) - 1, -1).astype(np.int32)
        self._staging.write_columns(rows, start, count, ids_at, line)
        sampled = rows[drawing]
        self._table.num_tokens[sampled] += 1
        traits = self._traits
        return HostStep(
            num_rows=len(rows),
            num_tokens=num_tokens,
            decodes_only=bool((count == 1).all()),
            sampled_rows=sampled,
            filtered=bool(traits.filtered[sampled].any()),
            ruled=bool(traits.ruled[sampled].any()),
            num_logprobs=traits.num_logprobs[sampled],
        )


def _plain(new: NewRow) -> NewRow:
    """The row without its lists."""
    params = new.params.clone()
    params.allowed_token_ids, params.logit_bias, params.min_tokens = None, None, 0
    return NewRow(new.row, new.tokens, new.prompt_len, params, new.seed, new.choice, new.blocks, bad_words=())
