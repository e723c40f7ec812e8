"""Fills a step's token budget: rows that decode first, then chunks of prompts, then new rows."""

import numpy as np

from ...protocol.steps import StepPlan
from ..core.faults import settle
from ..core.state import SchedulerState
from .admit import FOR_PROMPTS, Admission
from .draft import Draft
from .relief import Relief
from .rows import Ints
from .worker import Worker

_PROMPT_SHARE = 8  # when decodes alone could fill the budget, prompts get a part of this size


class Planner:
    """Makes plans for one worker of the state."""

    def __init__(self, state: SchedulerState, worker: Worker, now: float) -> None:
        self._state = state
        self._worker = worker
        self._now = now
        self._admission = Admission(state, worker, now)
        self._relief = Relief(state, worker, now)

    def plan(self) -> StepPlan | None:
        """The next plan, now in flight; None when there is nothing to compute or results must come first."""
        worker = self._worker
        if not worker.ready or len(worker.flight) >= self._state.config.pipeline_depth:
            return None
        if not settle(self._state, worker, self._now):
            return None
        self._admission.call_back()
        self._relief.make_way()
        while True:
            draft = Draft(worker)
            if self._fill(draft) and not draft.empty:
                plan, step = draft.seal(self._state.identity.incarnation, self._now)
                self._note_chunks(step.chunk_rows)
                return plan
            if not self._relief.relieve():
                return None

    def _fill(self, draft: Draft) -> bool:
        """Add what fits; False when decodes lack blocks, with nothing added."""
        rows = self._worker.rows
        todo = rows.length - rows.num_computed
        todo[rows.length >= rows.max_length] = 0  # the last token it may have is being drawn
        decodes, prompts = (todo == 1).nonzero()[0], (todo > 1).nonzero()[0]
        if len(decodes) >= self._worker.budget:
            decodes = self._within_budget(decodes, prompts)
        computed = rows.num_computed[decodes]
        short: list[list[int]] = []
        for group in self._worker.memory.groups:
            short.append(decodes[computed >= group.held[decodes] * group.block_size].tolist())
            if len(short[-1]) > group.num_free(len(short[-1])):
                return False
        for index, lacking in enumerate(short):
            draft.grow_each(index, lacking)
        if len(decodes):
            draft.decode(decodes, computed)
            if self._state.target_itl:
                draft.limit_seconds(self._state.target_itl)
        if not len(prompts) or self._read_prompts(draft, prompts, todo):
            self._admission.admit(draft)
        elif self._state.waiting.num_choices:
            self._state.waiting.block(FOR_PROMPTS, self._now)
        return True

    def _within_budget(self, decodes: Ints, prompts: Ints) -> Ints:
        """When not all rows can decode, they take turns, and prompts get a share."""
        worker = self._worker
        share = max(1, worker.budget // _PROMPT_SHARE) if len(prompts) or self._admission.may_start() else 0
        most = max(1, worker.budget - share)
        behind = decodes >= worker.next_row
        chosen = np.concatenate([decodes[behind], decodes[~behind]])[:most]
        worker.next_row = int(chosen[-1]) + 1
        return chosen

    def _read_prompts(self, draft: Draft, prompts: Ints, todo: Ints) -> bool:
        """Chunks of prompts that have begun, in order; False when one lacks blocks, budget or time."""
        rows = self._worker.rows
        for row in sorted(prompts.tolist(), key=self._reading_place):
            start = int(rows.num_computed[row])
            most = draft.most_tokens(start, int(todo[row]))
            if not most:
                return False
            count = self._worker.memory.room(row, start, most)
            if count <= 0:
                rows.at(row).request.story.note(self._now, "waits", "for blocks")
                return False
            draft.grow(row, start + count)
            draft.chunk(row, count)
        return True

    def _reading_place(self, row: int) -> tuple[float, int]:
        rows = self._worker.rows
        return self._state.order.place(rows.at(row).request), int(rows.tenancy[row])

    def _note_chunks(self, chunk_rows: tuple[int, ...]) -> None:
        rows = self._worker.rows
        for row in chunk_rows:
            choice = rows.at(row)
            detail = f"choice {choice.index} to {rows.num_computed[row]} of {rows.num_known[row]} tokens"
            choice.request.story.note(self._now, f"step {self._worker.last_step}", detail)
