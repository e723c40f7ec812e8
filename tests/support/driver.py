"""The least scheduler a runner needs: blocks from a counter, plans built from Python lists."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.protocol.columns import pack_i32
from octavo.protocol.sampling import SamplingParams
from octavo.protocol.steps import NewRow, StepPlan
from octavo.worker_proc.runner import Runner, StepOutput

HOLE = -1  # where a block that left a window stood


@dataclass
class Choice:
    """A choice in a row: what a scheduler would know of it."""

    row: int
    num_computed: int
    blocks: list[list[int]]
    output: list[int] = field(default_factory=list)
    prompt_len: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def num_known(self) -> int:
        return self.prompt_len + len(self.output)


class Driver:
    """Builds plans for a runner and applies what comes back."""

    def __init__(self, runner: Runner, *, incarnation: int = 1, worker: int = 1) -> None:
        self.runner = runner
        self.incarnation, self.worker = incarnation, worker
        self.free = [list(range(group.num_blocks)) for group in runner.kv_groups]
        self.step_number = 0
        self.rows: dict[int, Choice] = {}
        self._new: list[NewRow] = []
        self._released: list[int] = []
        self.last: StepOutput | None = None

    def add(
        self,
        prompt: Sequence[int],
        params: SamplingParams | None = None,
        *,
        seed: int = 0,
        choice: int = 0,
        row: int | None = None,
        output: Sequence[int] = (),
        shared: Choice | None = None,
        num_shared: int = 0,
        bad_words: Sequence[Sequence[int]] = (),
    ) -> Choice:
        """Put a choice in a row. `num_shared` tokens' blocks come from `shared` and count as computed."""
        row = min(set(range(self.runner.max_num_seqs)) - set(self.rows)) if row is None else row
        groups = self.runner.kv_groups
        blocks = [
            [] if shared is None else shared.blocks[g][: num_shared // group.block_size]
            for g, group in enumerate(groups)
        ]
        tokens = [*prompt, *output]
        sequence = Choice(row, num_shared, blocks, list(output), len(prompt))
        for g, group in enumerate(groups):
            while len(blocks[g]) * group.block_size < len(tokens):
                blocks[g].append(self.free[g].pop(0))
        self.rows[row] = sequence
        self._new.append(
            NewRow(
                row=row,
                tokens=pack_i32(tokens),
                prompt_len=len(prompt),
                params=params or SamplingParams(temperature=0),
                seed=seed,
                choice=choice,
                blocks=tuple(pack_i32(b) for b in blocks),
                bad_words=tuple(pack_i32(word) for word in bad_words),
                prompt_logprobs=-1
                if params is None or params.prompt_logprobs is None
                else params.prompt_logprobs,
            )
        )
        return sequence

    def release(self, sequence: Choice, *, free_blocks: bool = True) -> None:
        del self.rows[sequence.row]
        self._released.append(sequence.row)
        if free_blocks:
            for free, blocks in zip(self.free, sequence.blocks, strict=True):
                free += [block for block in blocks if block != HOLE]

    def plan(self, chunk: int = 1 << 30, rows: Sequence[Choice] | None = None) -> StepPlan:
        """The next plan: each row computes what it knows and has not computed, at most `chunk` tokens."""
        self.step_number += 1
        appended: list[tuple[int, int, int]] = []
        columns: list[tuple[int, int, int, int]] = []
        for sequence in self.rows.values() if rows is None else rows:
            count = min(chunk, sequence.num_known - sequence.num_computed)
            end = sequence.num_computed + count
            for g, group in enumerate(self.runner.kv_groups):
                if group.window:
                    self._leave_window(sequence, g)
                while len(sequence.blocks[g]) * group.block_size < end:
                    block = self.free[g].pop(0)
                    sequence.blocks[g].append(block)
                    appended.append((sequence.row, g, block))
            columns.append((sequence.row, sequence.num_computed, count, int(end == sequence.num_known)))
            sequence.num_computed = end
        new, released = tuple(self._new), pack_i32(self._released)
        self._new, self._released = [], []
        row, start, num, samples = (pack_i32(c) for c in zip(*columns, strict=True)) if columns else [b""] * 4
        add_row, add_group, add_block = (
            (pack_i32(c) for c in zip(*appended, strict=True)) if appended else [b""] * 3
        )
        return StepPlan(
            incarnation=self.incarnation,
            worker=self.worker,
            step=self.step_number,
            released=released,
            new=new,
            append_row=add_row,
            append_group=add_group,
            append_block=add_block,
            row=row,
            start=start,
            num_tokens=num,
            samples=samples,
        )

    def _leave_window(self, sequence: Choice, g: int) -> None:
        """Blocks that no later position reads are the next to be handed out."""
        group, blocks = self.runner.kv_groups[g], sequence.blocks[g]
        lowest = max(0, sequence.num_computed - group.window + 1) // group.block_size
        self.free[g][:0] = [block for block in blocks[:lowest] if block != HOLE]
        blocks[:lowest] = [HOLE] * lowest

    def step(self, chunk: int = 1 << 30, rows: Sequence[Choice] | None = None) -> StepOutput:
        """Plan, execute, and append what was drawn."""
        self.last = self.runner.execute(self.plan(chunk, rows))
        for row, token in zip(self.last.rows.tolist(), self.last.tokens.tolist(), strict=True):
            self.rows[row].output.append(token)
        for error in self.last.errors:
            self.rows[error.row].errors.append(error.message)
        return self.last

    def generate(self, sequences: Sequence[Choice], num_tokens: int, chunk: int = 1 << 30) -> list[list[int]]:
        """Step until each sequence has `num_tokens` outputs; then release them."""
        while pending := [s for s in sequences if len(s.output) < num_tokens]:
            self.step(chunk, pending)
        for sequence in sequences:
            self.release(sequence)
        return [sequence.output for sequence in sequences]
