"""A plan in the making: rows are added to it, then it becomes a message and a step in flight."""

from array import array
from dataclasses import dataclass

import numpy as np

from ...protocol.steps import NewRow, StepPlan
from ..core.request import Choice
from ..memory.kv_group import HOLE
from .rows import Ints
from .step_model import StepWork
from .worker import Step, Worker

_LEAST_CHUNK = 16  # tokens that a step reads of prompts, however long its decodes take


class Draft:
    """What the next plan for a worker will hold. `budget` is how many tokens may still be added."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.budget = worker.budget
        self._seconds = float("inf")  # that are left for chunks
        self._attended = 0.0
        self._new: list[NewRow] = []
        self._append: tuple[list[int], list[int], list[int]] = ([], [], [])  # row, KV group, block
        self._decodes: Ints = np.zeros(0, np.int64)
        self._start: Ints = self._decodes  # of each
        self._chunks: list[tuple[int, int, int, int]] = []  # row, start, number of tokens, samples

    @property
    def begun(self) -> bool:
        """Whether a prompt is read in this step."""
        return bool(self._chunks)

    @property
    def empty(self) -> bool:
        return not len(self._decodes) and not self._chunks

    def grow(self, row: int, length: int) -> None:
        """Let a row that the worker knows hold `length` tokens; the blocks must be free."""
        for index, group in enumerate(self._worker.memory.groups):
            for block in group.grow(row, length):
                for column, value in zip(self._append, (row, index, block), strict=True):
                    column.append(value)

    def grow_each(self, index: int, rows: list[int]) -> None:
        """Rows that the worker knows get one more block of a KV group; they must be free."""
        if rows:
            added = self._worker.memory.groups[index].grow_each(rows)
            for column, values in zip(self._append, (rows, [index] * len(rows), added), strict=True):
                column += values

    def decode(self, rows: Ints, start: Ints) -> None:
        """Each of these rows [n] computes its token at `start` [n] and draws the next; it has the block."""
        self._decodes, self._start = rows, start
        self.budget -= len(rows)
        self._worker.rows.num_computed[rows] = start + 1
        self._worker.rows.length[rows] = start + 2

    def limit_seconds(self, target: float) -> None:
        """The step is to take no longer than `target` seconds, as far as chunks of prompts decide that."""
        rows = self._decodes
        context = int(self._worker.rows.num_computed[rows].sum())
        self._seconds = target - self._worker.model.seconds(StepWork(len(rows), 0, context))

    def most_tokens(self, start: int, wanted: int) -> int:
        """How many of `wanted` tokens from position `start` on the step may compute, by budget and time."""
        most = min(wanted, self.budget)
        if self._seconds == float("inf") or not most:
            return most
        in_time = max(0, int(self._seconds / self._worker.model.token_seconds(start)))
        if in_time < most:
            in_time -= in_time % _LEAST_CHUNK
            if not self._chunks:
                in_time = max(in_time, _LEAST_CHUNK)
        return min(most, in_time)

    def chunk(self, row: int, count: int) -> None:
        """A row computes `count` more of its known tokens. Its blocks are there."""
        rows = self._worker.rows
        start = int(rows.num_computed[row])
        samples = int(start + count == rows.length[row])
        self._chunks.append((row, start, count, samples))
        self.budget -= count
        self._attended += count * (start + count / 2)
        self._seconds -= (
            count * self._worker.model.token_seconds(start) if self._seconds < float("inf") else 0
        )
        rows.num_computed[row] += count
        rows.length[row] += samples

    def add(self, choice: Choice) -> None:
        """The worker learns of a row. Its first blocks are there."""
        request, row = choice.request, choice.row
        asked = request.params.prompt_logprobs if request.reads_aloud else None
        # A hole is never read, but every id that a worker sees is a block's.
        tables = [
            [0 if block == HOLE else block for block in group.tables[row]]
            if group.first[row]
            else group.tables[row]
            for group in self._worker.memory.groups
        ]
        self._new.append(
            NewRow(
                row=row,
                tokens=choice.token_bytes(0, choice.num_known),
                prompt_len=request.prompt_len,
                params=request.params,
                seed=request.seed,
                choice=choice.index,
                blocks=tuple(map(_bytes, tables)),
                bad_words=request.bad_words,
                prompt_logprobs=-1 if asked is None else asked,
            )
        )

    def seal(self, incarnation: int, now: float) -> tuple[StepPlan, Step]:
        """The plan and its step; from now on the step is in flight."""
        worker = self._worker
        worker.last_step += 1
        columns = self._columns()
        rows, start = columns.rows, columns.start
        step = Step(
            number=worker.last_step,
            sent=now,
            rows=rows,
            tenancy=worker.rows.tenancy[rows],
            end=columns.end,
            sampled=columns.sampled,
            num_tokens=columns.num_tokens,
            sampled_rows=columns.sampled_rows,
            chunk_rows=tuple(chunk[0] for chunk in self._chunks),
            work=StepWork(
                len(rows), columns.num_tokens - len(self._decodes), int(start.sum()), self._attended
            ),
        )
        worker.flight.append(step)
        append_row, append_group, append_block = (_bytes(column) for column in self._append)
        plan = StepPlan(
            incarnation=incarnation + worker.session,
            worker=worker.ranks[0].incarnation,
            step=worker.last_step,
            released=_bytes(worker.released),
            new=tuple(self._new),
            append_row=append_row,
            append_group=append_group,
            append_block=append_block,
            row=columns.row_bytes,
            start=_bytes(start),
            num_tokens=columns.counts,
            samples=columns.samples,
        )
        worker.released = []
        return plan, step

    def _columns(self) -> "_Columns":
        rows, start, size = self._decodes, self._start, len(self._decodes)
        if not self._chunks:
            ones, row_bytes = np.ones(size, np.int32).tobytes(), _bytes(rows)
            return _Columns(rows, start, start + 1, np.arange(size), size, row_bytes, row_bytes, ones, ones)
        chunks = np.array(self._chunks, np.int64)
        ones_each = np.ones(size, np.int64)
        rows = np.concatenate([rows, chunks[:, 0]])
        start = np.concatenate([start, chunks[:, 1]])
        count = np.concatenate([ones_each, chunks[:, 2]])
        samples = np.concatenate([ones_each, chunks[:, 3]])
        sampled = samples.nonzero()[0]
        return _Columns(
            rows,
            start,
            start + count,
            sampled,
            int(count.sum()),
            _bytes(rows),
            _bytes(rows[sampled]),
            _bytes(count),
            _bytes(samples),
        )


@dataclass(frozen=True, slots=True)
class _Columns:
    """A step's R rows: those that decode, then those that read a chunk."""

    rows: Ints  # [R]
    start: Ints  # [R] position of the first token to compute
    end: Ints  # [R] position behind the last one
    sampled: Ints  # indexes of those that draw a token
    num_tokens: int
    row_bytes: bytes  # int32 columns from here on
    sampled_rows: bytes
    counts: bytes
    samples: bytes


def _bytes(values: "Ints | list[int]") -> bytes:
    if isinstance(values, list):
        return array("i", values).tobytes()
    return values.astype(np.int32).tobytes()
