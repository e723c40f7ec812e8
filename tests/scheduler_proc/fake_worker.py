"""A worker in memory whose text depends on every KV slot a row can see.

Each slot of KV group g holds a digest of all tokens up to the one written there, made from the digest of the
position before, which is read back through the row's block table. A token is drawn from a sum over all
visible slots: a wrong, stale, shared or freed block changes the text. `lone_text` computes the same from the
tokens alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.protocol.columns import pack_f32, pack_i32, unpack_i32
from octavo.protocol.lifecycle import KVGroup
from octavo.protocol.replies import LogprobColumns
from octavo.protocol.sampling import SamplingParams
from octavo.protocol.steps import NewRow, RowError, RowPromptLogprobs, StepPlan, StepResult

_MODULUS = (1 << 61) - 1
VOCAB = 50
EOS = 1


def _digest(group: int, before: int, token: int) -> int:
    return (before * 1_000_003 + token * 7_919 + group + 11) % _MODULUS


def _draw(seen: int, params: SamplingParams, seed: int, choice: int, position: int, num_output: int) -> int:
    mixed = seen * 2_654_435_761 + position
    if params.temperature:
        mixed += seed * 97 + choice * 1_299_709
    token = (mixed % _MODULUS) * 31 % _MODULUS % VOCAB
    masked = {*(params.stop_token_ids or ()), *(() if params.ignore_eos else (EOS,))}
    while num_output < params.min_tokens and token in masked:
        token = (token + 1) % VOCAB
    return token


def _look(digests: Sequence[Sequence[int]], groups: Sequence[KVGroup], length: int) -> int:
    """What a row with `length` tokens sees; digests[g][p] is the slot of position p."""
    seen = 0
    for slots, group in zip(digests, groups, strict=True):
        first = max(0, length - group.window) if group.window else 0
        seen = (seen * 31 + sum(slots[p] * (2 * p + 1) for p in range(first, length))) % _MODULUS
    return seen


def lone_text(
    prompt: Sequence[int],
    params: SamplingParams,
    seed: int,
    choice: int,
    groups: Sequence[KVGroup],
    room: int,
) -> list[int]:
    """The output tokens of a choice that runs alone, with all the memory there could be."""
    digests: list[list[int]] = [[] for _ in groups]
    output: list[int] = []
    tokens = list(prompt)
    limit = room if params.max_tokens is None else min(params.max_tokens, room)
    stops = {*(params.stop_token_ids or ()), *(() if params.ignore_eos else (EOS,))}
    while True:
        for index, slots in enumerate(digests):
            while len(slots) < len(tokens):
                slots.append(_digest(index, slots[-1] if slots else 0, tokens[len(slots)]))
        seen = _look(digests, groups, len(tokens))
        token = _draw(seen, params, seed, choice, len(tokens), len(output))
        output.append(token)
        tokens.append(token)
        if len(output) >= limit or (token in stops and len(output) >= params.min_tokens):
            return output


@dataclass
class _Row:
    new: NewRow
    tokens: list[int]
    tables: list[list[int]]


class _Slots:
    """The slots of one row in one group, read through its table."""

    def __init__(self, worker: "FakeWorker", group: int, table: list[int]) -> None:
        self._memory = worker.memory[group]
        self._size = worker.groups[group].block_size
        self._table = table

    def slot(self, position: int) -> int:
        return self._table[position // self._size] * self._size + position % self._size

    def __getitem__(self, position: int) -> int:
        return self._memory[self.slot(position)]

    def __setitem__(self, position: int, digest: int) -> None:
        self._memory[self.slot(position)] = digest


class FakeWorker:
    """Executes plans strictly: whatever does not fit what the rows hold is an assertion."""

    def __init__(self, groups: Sequence[KVGroup], num_rows: int, budget: int, incarnation: int) -> None:
        self.groups = groups
        self.num_rows = num_rows
        self.budget = budget
        self.incarnation = incarnation
        self.memory = [[-7] * (group.num_blocks * group.block_size) for group in groups]
        self.rows: dict[int, _Row] = {}
        self.scheduler: int | None = None
        self.last_step = 0
        self.computed = 0  # tokens
        self.fail_rows: dict[int, str] = {}  # rows that fail in the next step, and why
        self.fail_param = ""  # the field at fault

    def execute(self, plan: StepPlan) -> StepResult:
        assert plan.worker == self.incarnation
        if plan.incarnation != self.scheduler:
            self.rows.clear()
            self.scheduler, self.last_step = plan.incarnation, 0
        assert plan.step == self.last_step + 1, "steps are consecutive"
        self.last_step = plan.step
        self._apply(plan)
        return self._compute(plan)

    def _apply(self, plan: StepPlan) -> None:
        for row in unpack_i32(plan.released):
            del self.rows[row]
        for new in plan.new:
            assert new.row not in self.rows and new.row < self.num_rows
            tables = [unpack_i32(column).tolist() for column in new.blocks]
            assert len(tables) == len(self.groups)
            self.rows[new.row] = _Row(new, unpack_i32(new.tokens).tolist(), tables)
        appended = (unpack_i32(c) for c in (plan.append_row, plan.append_group, plan.append_block))
        for row, group, block in zip(*appended, strict=True):
            assert 0 <= block < self.groups[group].num_blocks
            self.rows[row].tables[group].append(block)

    def _compute(self, plan: StepPlan) -> StepResult:
        columns = [unpack_i32(c).tolist() for c in (plan.row, plan.start, plan.num_tokens, plan.samples)]
        lines = list(zip(*columns, strict=True))
        assert lines, "a plan computes something"
        assert len(set(columns[0])) == len(lines), "a row is scheduled once a step"
        assert sum(columns[2]) <= self.budget, "the budget holds"
        self.computed += sum(columns[2])
        drawn: list[tuple[int, int]] = []
        # All rows write before any reads, as on a device: blocks shared too early show.
        for row, start, count, samples in lines:
            self._write(self.rows[row], start, count, samples)
        failing = [row for row in columns[0] if row in self.fail_rows]
        errors = tuple(RowError(row, self.fail_rows.pop(row), self.fail_param) for row in failing)
        failed = {error.row for error in errors}
        for row, start, count, samples in lines:
            # A failed row goes on with whatever was drawn: the plan behind may compute it.
            token = self._sample(self.rows[row], start + count) if samples else -1
            if samples and row not in failed:
                drawn.append((row, token))
        told = [self._tell(row, start, count) for row, start, count, _ in lines]
        return StepResult(
            incarnation=self.incarnation,
            step=plan.step,
            row=pack_i32(row for row, _ in drawn),
            token=pack_i32(token for _, token in drawn),
            device_ms=1.0,
            host_ms=1.5,
            errors=errors,
            prompt_logprobs=tuple(part for part in told if part is not None),
        )

    def _tell(self, row: int, start: int, count: int) -> RowPromptLogprobs | None:
        """Of each prompt token that follows a computed one: itself, at minus its position."""
        new = self.rows[row].new
        tokens = self.rows[row].tokens[start + 1 : min(start + count + 1, new.prompt_len)]
        if new.prompt_logprobs < 0 or not tokens:
            return None
        ones = pack_i32([1] * len(tokens))
        values = pack_f32([-float(start + 1 + index) for index in range(len(tokens))])
        return RowPromptLogprobs(row, start + 1, LogprobColumns(ones, pack_i32(tokens), values, ones))

    def _write(self, row: _Row, start: int, count: int, samples: int) -> None:
        end = start + count
        assert count > 0 and end <= len(row.tokens), "only known tokens are computed"
        assert samples == (end == len(row.tokens)), "the last known token draws the next"
        for index, table in enumerate(row.tables):
            assert end <= len(table) * self.groups[index].block_size, "blocks hold what is computed"
            slots = _Slots(self, index, table)
            for position in range(start, end):
                before = slots[position - 1] if position else 0
                slots[position] = _digest(index, before, row.tokens[position])

    def _sample(self, row: _Row, length: int) -> int:
        digests = [_Slots(self, index, table) for index, table in enumerate(row.tables)]
        seen = _look(digests, self.groups, length)  # type: ignore[arg-type]
        new = row.new
        token = _draw(seen, new.params, new.seed, new.choice, length, len(row.tokens) - new.prompt_len)
        row.tokens.append(token)
        return token
