"""A line of choices, the first at the front."""

import heapq
from collections.abc import Iterator

from ..core.request import Choice, State

Entry = tuple[float, int, int, int, Choice]  # key, serial of the request, choice, ticket


class Line:
    """A heap with lazy removal: a choice that left keeps its entry until the entry comes to the front."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[Entry] = []

    def __len__(self) -> int:
        """Entries, those of choices that left included."""
        return len(self._heap)

    def push(self, key: float, choice: Choice) -> None:
        """Queue a choice: lower keys first, equal ones by arrival."""
        heapq.heappush(self._heap, (key, choice.request.serial, choice.index, choice.ticket, choice))

    def front(self) -> tuple[float, Choice] | None:
        """The first choice that still waits, and its key."""
        while self._heap:
            entry = self._heap[0]
            if _waits(entry):
                return entry[0], entry[4]
            heapq.heappop(self._heap)
        return None

    def pop(self) -> None:
        """Take the front out of this line."""
        heapq.heappop(self._heap)

    def sweep(self) -> None:
        """Drop the entries of choices that left."""
        self._heap = [entry for entry in self._heap if _waits(entry)]
        heapq.heapify(self._heap)

    def choices(self) -> Iterator[Choice]:
        """All that wait here, in order; for checks."""
        return (entry[4] for entry in sorted(self._heap, key=lambda entry: entry[:4]) if _waits(entry))


def _waits(entry: Entry) -> bool:
    choice = entry[4]
    return choice.ticket == entry[3] and choice.state is State.WAITING
