"""The queue: choices in the order of the policy, requests that wait for their first step counted."""

import heapq

from ..core.request import Choice, State

_SLACK = 64  # entries of choices that left, beyond as many as wait, before they are swept out


class Waiting:
    """A heap with lazy removal: a choice that left keeps its entry until the entry comes to the top."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, int, Choice]] = []
        self._tickets = 0
        self.num_choices = 0
        self.num_new = 0  # requests that no step has computed yet
        self.num_new_tokens = 0  # prompt tokens of those
        self.blocked = ""  # what the head waits for, empty when nothing is known to block it

    def push(self, choice: Choice) -> None:
        """Queue a choice. A preempted one goes where its arrival puts it: before all that came later."""
        request = choice.request
        self._tickets += 1
        choice.state, choice.ticket = State.WAITING, self._tickets
        entry = (request.key, request.serial, choice.index, choice.ticket, choice)
        heapq.heappush(self._heap, entry)
        self.num_choices += 1
        if request.started < 0 and not request.is_new:
            request.is_new = True
            self.num_new += 1
            self.num_new_tokens += request.prompt_len

    def head(self) -> Choice | None:
        """The choice that is next, still queued."""
        while self._heap:
            _, _, _, ticket, choice = self._heap[0]
            if choice.state is State.WAITING and choice.ticket == ticket:
                return choice
            heapq.heappop(self._heap)
        return None

    def leave(self, choice: Choice) -> None:
        """Take a choice out, wherever it stands. Its next state is the caller's to set, before `head`."""
        request = choice.request
        choice.ticket = -1
        self.num_choices -= 1
        if len(self._heap) > 2 * self.num_choices + _SLACK:
            self._heap = [entry for entry in self._heap if entry[4].ticket == entry[3]]
            heapq.heapify(self._heap)
        if request.is_new:
            request.is_new = False
            self.num_new -= 1
            self.num_new_tokens -= request.prompt_len

    def choices(self) -> list[Choice]:
        """All that wait, in order; for checks."""
        return [
            entry[4]
            for entry in sorted(self._heap, key=lambda entry: entry[:4])
            if entry[4].state is State.WAITING and entry[4].ticket == entry[3]
        ]
