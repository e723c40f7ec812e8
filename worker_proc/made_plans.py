"""Plans without a scheduler: a batch of equal rows, for measuring a runner alone."""

from collections.abc import Sequence

from ..protocol.columns import pack_i32
from ..protocol.sampling import SamplingParams
from ..protocol.steps import NewRow, StepPlan
from .runner import Runner


class MadePlans:
    """Rows of one length; each owns the blocks it will ever need from the start."""

    def __init__(self, runner: Runner, *, prompt_len: int, max_len: int, params: SamplingParams) -> None:
        self._runner = runner
        self._prompt_len = prompt_len
        self._num_blocks = -(-max_len // runner.kv_groups[0].block_size)
        self._params = params
        self._step = 0

    def prompts(self, rows: Sequence[int]) -> StepPlan:
        """Take the rows, and read their whole prompts."""
        return self.chunk(rows, 0, self._prompt_len)

    def chunk(self, rows: Sequence[int], start: int, count: int) -> StepPlan:
        """Read a part of the rows' prompts; the first part takes the rows."""
        new = tuple(self._new_row(row) for row in rows) if start == 0 else ()
        last = start + count == self._prompt_len
        return self._plan(rows, start, count, new=new, samples=last)

    def decodes(self, rows: Sequence[int], position: int) -> StepPlan:
        """One token of each row, at `position`."""
        return self._plan(rows, position, 1, new=(), samples=True)

    def _plan(
        self, rows: Sequence[int], start: int, count: int, *, new: tuple[NewRow, ...], samples: bool
    ) -> StepPlan:
        self._step += 1
        return StepPlan(
            incarnation=1,
            worker=1,
            step=self._step,
            released=b"",
            new=new,
            append_row=b"",
            append_group=b"",
            append_block=b"",
            row=pack_i32(rows),
            start=pack_i32([start] * len(rows)),
            num_tokens=pack_i32([count] * len(rows)),
            samples=pack_i32([int(samples)] * len(rows)),
        )

    def _new_row(self, row: int) -> NewRow:
        blocks = range(row * self._num_blocks, (row + 1) * self._num_blocks)
        prompt = [(row * 7919 + i * 104729) % self._runner.vocab_size for i in range(self._prompt_len)]
        return NewRow(row, pack_i32(prompt), len(prompt), self._params, row, 0, (pack_i32(blocks),))
