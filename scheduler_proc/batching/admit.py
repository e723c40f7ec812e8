"""Takes choices from the queue, while there are rows, blocks and budget for the next."""

from ..core.ends import drop_hold, settle_hold, shared_length
from ..core.faults import next_choice
from ..core.request import Choice, State
from ..core.state import SchedulerState
from ..memory.kv_cache import Prefix
from ..waiting.reasons import BY_FORECAST, FOR_BLOCKS
from .admission import will_fit
from .draft import Draft
from .worker import Worker

FOR_PROMPTS = "for prompts that are being read"
_FOR_A_LOOK_UP = "for the cache to be searched for its prompt"
_FOR_A_ROW = "for a row"
_FOR_ANOTHER = "for another worker"
_FOR_OTHERS = "for more prompts to share its step"
_LEAST_GAIN = 2  # waiting for another's blocks must save at least this part of the work: 1 / 2


class Admission:
    """Starts waiting choices on one worker of the state."""

    def __init__(self, state: SchedulerState, worker: Worker, now: float) -> None:
        self._state = state
        self._worker = worker
        self._now = now

    def call_back(self) -> None:
        """Queue those again that waited for the blocks of another row."""
        for choice in self._worker.followers.take_woken():
            self._state.waiting.unpark(choice)

    def may_start(self) -> bool:
        """Whether a step could start the head of the queue, as far as is known without trying."""
        head = next_choice(self._state, self._worker, self._now)
        return head is not None and self._worker.rows.num_free > 0 and not self._refused(head)

    def admit(self, draft: Draft) -> None:
        """Start choices until the head of the queue has to wait."""
        waiting = self._state.waiting
        blocked = ""
        while (choice := next_choice(self._state, self._worker, self._now)) is not None:
            blocked = self._why_not(draft, choice) or self._start(draft, choice)
            if blocked:
                choice.request.story.note(self._now, "waits", blocked)
                break
        waiting.block(blocked, self._now)

    def _asked(self, choice: Choice) -> tuple[int, int]:
        """Stands for asking the forecast about a choice; it gets no better before a row ends."""
        return choice.ticket, self._worker.num_released

    def _refused(self, choice: Choice) -> bool:
        return self._worker.refused == self._asked(choice) and self._worker.rows.num_taken > 0

    def _why_not(self, draft: Draft, choice: Choice) -> str:
        if choice.pending:
            return "for its token in flight"
        if not draft.budget:
            return "for budget"
        if not self._worker.rows.num_free:
            return _FOR_A_ROW
        if self._gathers(draft, choice):
            return _FOR_OTHERS
        if any(other.trials.suspects(choice) for other in self._state.workers if other is not self._worker):
            return _FOR_ANOTHER
        others = [worker.rows.num_taken for worker in self._state.workers if worker.ready]
        return _FOR_ANOTHER if self._worker.rows.num_taken > min(others) else ""

    def _gathers(self, draft: Draft, choice: Choice) -> bool:
        """Whether prompts are still collected for a common step: a short time, and no more than fill it."""
        state, waiting = self._state, self._state.waiting
        delay = state.config.max_batch_delay_ms / 1e3
        if not delay or choice.request.started >= 0:
            return False
        ends = choice.request.arrived + delay
        full = waiting.num_new_tokens >= draft.budget or waiting.num_new >= self._worker.rows.num_free
        if full or draft.begun or self._now >= ends:
            return False
        state.gather_until = ends
        return True

    def _start(self, draft: Draft, choice: Choice) -> str:
        """Give the choice a row and its first chunk; returns what it waits for when that cannot be."""
        worker, request = self._worker, choice.request
        if self._refused(choice):
            return BY_FORECAST
        if not self._looked_up(choice):
            return _FOR_A_LOOK_UP
        prefix = self._prefix(choice)
        if self._follows(choice, prefix):
            return ""
        left = choice.num_known - prefix.length
        most = draft.most_tokens(prefix.length, left)
        if not most:
            return "for time in the step"
        if not will_fit(worker, choice, prefix, self._state.lengths):
            worker.refused = self._asked(choice)
            return BY_FORECAST
        row = worker.rows.take(choice, worker.index)
        if prefix is request.hold and self._in_slices(choice):
            worker.memory.adopt(row, prefix)
            request.hold = None
        else:
            worker.memory.attach(row, prefix)
        worker.rows.start_behind(row, prefix.length)
        count = worker.memory.room(row, prefix.length, most)
        if count <= 0:
            worker.memory.release(row)
            worker.rows.release(row)
            choice.state = State.WAITING
            return FOR_BLOCKS
        self._state.order.start(choice, left)
        self._state.waiting.leave(choice)
        self._begin(choice, prefix)
        for group in worker.memory.groups:
            group.grow(row, prefix.length + count)
        draft.add(choice)
        draft.chunk(row, count)
        settle_hold(self._state, request)
        return ""

    def _follows(self, choice: Choice, prefix: Prefix) -> bool:
        """Let the choice wait for a row that reads the same prompt, when that saves enough work."""
        worker = self._worker
        stride = worker.memory.stride
        left = choice.num_known - prefix.length
        if not worker.memory.caching or left <= stride or choice.request.reads_aloud:
            return False
        name = choice.chain.link(stride, 0)
        leader = worker.followers.leader(name, choice, worker.rows, stride)
        if leader is None or (leader.shared - prefix.length) * _LEAST_GAIN < left:
            return False
        self._state.waiting.park(choice)
        worker.followers.wait(choice, leader)
        reads = worker.rows.at(leader.row).request.name
        detail = f"for the {leader.shared} tokens that it begins with like {reads}, which reads them"
        choice.request.story.note(self._now, "waits", detail)
        return True

    def _looked_up(self, choice: Choice) -> bool:
        """Whether it is known what the cache has of a long prompt; what was found is kept until it starts."""
        worker, request = self._worker, choice.request
        if not self._in_slices(choice):
            return True
        if request.hold is None or request.hold_worker != worker.index:
            # It may have come in this turn, which has cost enough of it.
            drop_hold(self._state, request)
            request.hold, request.hold_worker = Prefix(0, ([],)), worker.index
            more = True
        else:
            request.hold, more = worker.memory.find_more(request.hold, choice.chain, choice.num_known)
        self._state.searching |= more
        return not more

    def _in_slices(self, choice: Choice) -> bool:
        request = choice.request
        alone = len(request.choices) == 1 and not request.reads_aloud
        return alone and self._worker.memory.is_long(choice.num_known)

    def _prefix(self, choice: Choice) -> Prefix:
        if choice.request.reads_aloud:
            return self._worker.memory.nothing
        if choice.request.hold is not None and self._in_slices(choice):
            return choice.request.hold
        found = self._worker.memory.find(choice.chain, choice.num_known)
        hold = choice.request.hold
        kept = hold is not None and choice.request.hold_worker == self._worker.index
        return hold if hold is not None and kept and hold.length > found.length else found

    def _begin(self, choice: Choice, prefix: Prefix) -> None:
        state, request, worker = self._state, choice.request, self._worker
        detail = f"choice {choice.index} in row {choice.row}, {prefix.length} tokens cached"
        request.story.note(self._now, "starts", detail + state.waiting.told_wait(choice, self._now))
        if worker.memory.caching and choice.num_known > worker.memory.stride:
            name = choice.chain.link(worker.memory.stride, 0)
            worker.followers.begin(name, choice.row, choice.tenancy)
        if request.forks:
            worker.rows.keep[choice.row] = shared_length(worker, request)
        if request.started >= 0:
            return
        request.started = self._now
        request.num_cached = min(prefix.length, request.prompt_len)
        if worker.memory.caching:
            state.stats.prefix_queries += request.prompt_len
            state.stats.prefix_hits += request.num_cached
        state.forecast.began(request.prompt_len, request.num_cached)
