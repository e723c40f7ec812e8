"""Makes room: for rows that cannot go on, and for a request that outranks those that run.

Memory that does not suffice is handled in this order: what is in flight may free some, so wait for its
result; give up blocks kept for forks; preempt the last choice in the order of the policy.
"""

import numpy as np

from ...protocol.errors import RequestFailedError
from ...protocol.ids import FinishReason
from ..core.ends import drop_hold, end_request, holders_at, preempt
from ..core.faults import next_choice
from ..core.request import Choice, State
from ..core.state import SchedulerState
from .worker import Worker


class Relief:
    """Takes rows and blocks away on one worker of the state."""

    def __init__(self, state: SchedulerState, worker: Worker, now: float) -> None:
        self._state = state
        self._worker = worker
        self._now = now

    def make_way(self) -> None:
        """Preempt the last choice in the order when the head of the queue outranks it and cannot start."""
        worker = self._worker
        head = next_choice(self._state, worker, self._now)
        if head is None or not worker.rows.num_taken:
            return
        refused = worker.refused == (head.ticket, worker.num_released)
        if worker.rows.num_free and not refused:
            return
        if not self._state.order.preempts or self._may_free() or self._elsewhere(head):
            return
        last = max(worker.rows.taken().tolist(), key=self._place)
        if self._state.order.outranks(head.request, worker.rows.at(last).request):
            preempt(self._state, worker, last, self._now, f"{head.request.name} goes first")

    def relieve(self) -> bool:
        """Make room when a step lacks blocks; False when there is nothing to be done but wait."""
        worker = self._worker
        rows = worker.rows.taken()
        if self._may_free() or self._state.searching:
            return False
        if self._give_up_holds():
            return True
        if len(rows) > 1:
            last = max(rows.tolist(), key=self._place)
            preempt(self._state, worker, last, self._now, "no blocks")
            return True
        stuck = worker.rows.at(int(rows[0])) if len(rows) else next_choice(self._state, worker, self._now)
        if stuck is None or worker.flight or stuck.pending or self._elsewhere(stuck):
            return False
        if self._state.gather_until > self._now and stuck.state is State.WAITING:
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
        return self._state.order.place(choice.request), choice.request.serial, choice.index

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
