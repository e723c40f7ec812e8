"""A plan in the making: rows are added to it, then it becomes a message and a step in flight."""

from array import array

import numpy as np

from ...protocol.steps import NewRow, StepPlan
from ..core.request import Choice
from ..memory.kv_group import HOLE
from .rows import Int32s, Ints
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
        rows, start, count, samples = self._columns()
        num_tokens = int(count.sum())
        sampled = samples.nonzero()[0]
        row_bytes = _bytes(rows)
        step = Step(
            number=worker.last_step,
            sent=now,
            rows=rows,
            tenancy=worker.rows.tenancy[rows],
            end=start + count,
            sampled=sampled,
            num_tokens=num_tokens,
            sampled_rows=row_bytes if len(sampled) == len(rows) else _bytes(rows[sampled]),
            chunk_rows=tuple(chunk[0] for chunk in self._chunks),
            work=StepWork(len(rows), num_tokens - len(self._decodes), int(start.sum()), self._attended),
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
            row=row_bytes,
            start=_bytes(start),
            num_tokens=_bytes(count),
            samples=samples.tobytes(),
        )
        worker.released = []
        return plan, step

    def _columns(self) -> tuple[Ints, Ints, Ints, Int32s]:
        decodes = self._decodes
        start = self._start
        if not self._chunks:
            size = len(decodes)
            return decodes, start, np.ones(size, np.int64), np.ones(size, np.int32)
        chunks = np.array(self._chunks, np.int64)
        ones = np.ones(len(decodes), np.int64)
        return (
            np.concatenate([decodes, chunks[:, 0]]),
            np.concatenate([start, chunks[:, 1]]),
            np.concatenate([ones, chunks[:, 2]]),
            np.concatenate([ones, chunks[:, 3]]).astype(np.int32),
        )


def _bytes(values: "Ints | list[int]") -> bytes:
    if isinstance(values, list):
        return array("i", values).tobytes()
    return values.astype(np.int32).tobytes()
