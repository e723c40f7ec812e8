"""Fills a step's token budget: rows that decode first, then chunks of prompts, then new rows.

Memory that does not suffice is handled in this order: what is in flight may free some, so wait for its
result; give up blocks kept for forks; preempt the last choice in the order of the policy.
"""

import numpy as np

from ...protocol.errors import RequestFailedError
from ...protocol.ids import FinishReason
from ...protocol.steps import StepPlan
from ..core.ends import drop_hold, end_request, holders_at, preempt, settle_hold, shared_length
from ..core.request import Choice, State
from ..core.state import SchedulerState
from ..memory.kv_cache import Prefix
from .admission import will_fit
from .draft import Draft
from .rows import Ints
from .worker import Worker

_BY_FORECAST = "for blocks, by the forecast"
_PROMPT_SHARE = 8  # when decodes alone could fill the budget, prompts get a part of this size


class Planner:
    """Makes plans for one worker of the state."""

    def __init__(self, state: SchedulerState, worker: Worker, now: float) -> None:
        self._state = state
        self._worker = worker
        self._now = now

    def plan(self) -> StepPlan | None:
        """The next plan, now in flight; None when there is nothing to compute or results must come first."""
        worker = self._worker
        if not worker.ready or len(worker.flight) >= self._state.config.pipeline_depth:
            return None
        while True:
            draft = Draft(worker)
            if self._fill(draft) and not draft.empty:
                plan, step = draft.seal(self._state.identity.incarnation, self._now)
                self._note_chunks(step.chunk_rows)
                return plan
            if not self._relieve():
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
        grows: dict[int, None] = {}
        for group in self._worker.memory.groups:
            short = decodes[computed >= group.held[decodes] * group.block_size].tolist()
            if len(short) > group.pool.num_free:
                return False
            grows.update(dict.fromkeys(short))
        for row in grows:
            draft.grow(row, int(rows.num_computed[row]) + 1)
        if len(decodes):
            draft.decode(decodes)
        if not len(prompts) or self._read_prompts(draft, prompts, todo):
            self._admit(draft)
        return True

    def _within_budget(self, decodes: Ints, prompts: Ints) -> Ints:
        """When not all rows can decode, they take turns, and prompts get a share."""
        worker, head = self._worker, self._state.waiting.head()
        starts = head is not None and worker.rows.num_free and worker.refused != self._asked(head)
        share = max(1, worker.budget // _PROMPT_SHARE) if len(prompts) or starts else 0
        most = max(1, worker.budget - share)
        behind = decodes >= worker.next_row
        chosen = np.concatenate([decodes[behind], decodes[~behind]])[:most]
        worker.next_row = int(chosen[-1]) + 1
        return chosen

    def _asked(self, choice: Choice) -> tuple[int, int]:
        """Stands for asking the forecast about a choice; it gets no better before a row ends."""
        return choice.ticket, self._worker.num_released

    def _read_prompts(self, draft: Draft, prompts: Ints, todo: Ints) -> bool:
        """Chunks of prompts that have begun, the oldest first; False when one lacks blocks or budget."""
        rows = self._worker.rows
        for row in prompts[np.argsort(rows.tenancy[prompts])].tolist():
            if not draft.budget:
                return False
            start = int(rows.num_computed[row])
            count = min(int(todo[row]), draft.budget, self._worker.memory.room(row, start))
            if count <= 0:
                rows.at(row).request.story.note(self._now, "waits", "for blocks")
                return False
            draft.grow(row, start + count)
            draft.chunk(row, count)
        return True

    def _admit(self, draft: Draft) -> None:
        """Take choices from the queue while there are rows, blocks and budget for the next."""
        waiting = self._state.waiting
        waiting.blocked = ""
        while (choice := waiting.head()) is not None:
            waiting.blocked = self._why_not(draft, choice) or self._start(draft, choice)
            if waiting.blocked:
                choice.request.story.note(self._now, "waits", waiting.blocked)
                return

    def _why_not(self, draft: Draft, choice: Choice) -> str:
        if choice.pending:
            return "for its token in flight"
        if not draft.budget:
            return "for budget"
        if not self._worker.rows.num_free:
            return "for a row"
        others = [worker.rows.num_taken for worker in self._state.workers if worker.ready]
        return "for another worker" if self._worker.rows.num_taken > min(others) else ""

    def _start(self, draft: Draft, choice: Choice) -> str:
        """Give the choice a row and its first chunk; returns what it waits for when that cannot be."""
        worker, request = self._worker, choice.request
        if worker.refused == self._asked(choice) and worker.rows.num_taken:
            return _BY_FORECAST
        prefix = self._prefix(choice)
        if not will_fit(worker, choice, prefix, self._state.lengths):
            worker.refused = self._asked(choice)
            return _BY_FORECAST
        row = worker.rows.take(choice, worker.index)
        worker.memory.attach(row, prefix)
        worker.rows.start_behind(row, prefix.length)
        left = choice.num_known - prefix.length
        count = min(left, draft.budget, worker.memory.room(row, prefix.length))
        if count <= 0:
            worker.memory.release(row)
            worker.rows.release(row)
            choice.state = State.WAITING
            return "for blocks"
        self._state.waiting.leave(choice)
        self._begin(choice, prefix)
        for group in worker.memory.groups:
            group.grow(row, prefix.length + count)
        draft.add(choice)
        draft.chunk(row, count)
        settle_hold(self._state, request)
        return ""

    def _prefix(self, choice: Choice) -> Prefix:
        found = self._worker.memory.find(choice.chain, choice.num_known)
        hold = choice.request.hold
        kept = hold is not None and choice.request.hold_worker == self._worker.index
        return hold if hold is not None and kept and hold.length > found.length else found

    def _begin(self, choice: Choice, prefix: Prefix) -> None:
        state, request, worker = self._state, choice.request, self._worker
        detail = f"choice {choice.index} in row {choice.row}, {prefix.length} tokens cached"
        request.story.note(self._now, "starts", detail)
        if request.forks:
            worker.rows.keep[choice.row] = shared_length(worker, request)
        if request.started >= 0:
            return
        request.started = self._now
        request.num_cached = min(prefix.length, request.prompt_len)
        if worker.memory.caching:
            state.stats.prefix_queries += request.prompt_len
            state.stats.prefix_hits += request.num_cached
        state.forecast.moved(self._now, waiting=state.waiting.num_new)

    def _note_chunks(self, chunk_rows: tuple[int, ...]) -> None:
        rows = self._worker.rows
        for row in chunk_rows:
            choice = rows.at(row)
            detail = f"choice {choice.index} to {rows.num_computed[row]} of {rows.num_known[row]} tokens"
            choice.request.story.note(self._now, f"step {self._worker.last_step}", detail)

    def _relieve(self) -> bool:
        """Make room when a step lacks blocks; False when there is nothing to be done but wait."""
        worker = self._worker
        rows = worker.rows.taken()
        if self._may_free():
            return False
        if self._give_up_holds():
            return True
        if len(rows) > 1:
            last = max(rows.tolist(), key=self._place)
            preempt(self._state, worker, last, self._now)
            return True
        stuck = worker.rows.at(int(rows[0])) if len(rows) else self._state.waiting.head()
        if stuck is None or worker.flight or stuck.pending or self._elsewhere(stuck):
            return False
        error = RequestFailedError("the request does not fit into the KV cache of its worker")
        end_request(self._state, stuck.request, FinishReason.ERROR, self._now, error)
        return True

    def _elsewhere(self, choice: Choice) -> bool:
        """Whether a waiting choice is another worker's to start."""
        others = [other.rows.num_taken for other in self._state.workers if other.ready]
        return choice.state is State.WAITING and self._worker.rows.num_taken > min(others)

    def _place(self, row: int) -> tuple[float, int, int]:
        choice = self._worker.rows.at(row)
        return choice.request.key, choice.request.serial, choice.index

    def _may_free(self) -> bool:
        """Whether a step in flight may end a row, or give back what left a window."""
        rows = self._worker.rows
        if not self._worker.flight:
            return False
        if any(group.window for group in self._worker.memory.groups):
            return True
        flying = self._worker.in_flight()
        ends = (rows.length >= rows.max_length) | rows.many_stops | (rows.stops[0] >= 0)
        return bool((flying & ends & (rows.length > rows.num_known)).any())

    def _give_up_holds(self) -> bool:
        holders = holders_at(self._state, self._worker)
        for request in holders:
            drop_hold(self._state, request)
        rows = self._worker.rows
        kept = [row for row in rows.taken().tolist() if rows.num_written[row] > rows.keep[row]]
        for row in kept:
            rows.keep[row] = np.iinfo(np.int64).max
            self._worker.memory.leave_window(row, int(rows.num_written[row]))
        return bool(holders or kept)
