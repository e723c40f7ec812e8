"""What happened to a request, kept to answer why it took so long."""

from collections import deque

from ...protocol.replies import StoryEntry

_FIRST, _NEWEST = 16, 48  # entries kept for a request: how it began, and how it goes
_TOLD = 512  # ended requests whose stories are kept


class StoryLog:
    """Entries of one request. Times are given absolute and told relative to its arrival."""

    __slots__ = ("_arrived", "_dropped", "_first", "_newest")

    def __init__(self, arrived: float) -> None:
        self._arrived = arrived
        self._first: list[tuple[float, str, str]] = []
        self._newest: deque[tuple[float, str, str]] = deque(maxlen=_NEWEST)
        self._dropped = 0  # between the two

    def note(self, now: float, what: str, detail: str = "") -> None:
        """Add an entry; one that only repeats the last is left out."""
        last = self._newest or self._first
        if last and last[-1][1:] == (what, detail):
            return
        if len(self._first) < _FIRST:
            self._first.append((now, what, detail))
            return
        self._dropped += len(self._newest) == _NEWEST
        self._newest.append((now, what, detail))

    def entries(self) -> tuple[StoryEntry, ...]:
        left_out = [(self._newest[0][0], "...", f"{self._dropped} more")] if self._dropped else []
        return tuple(
            StoryEntry(round((at - self._arrived) * 1e3, 3), what, detail)
            for at, what, detail in (*self._first, *left_out, *self._newest)
        )

    def __str__(self) -> str:
        return "; ".join(f"{entry.at_ms:.1f} ms {entry.what} {entry.detail}" for entry in self.entries())


class Stories:
    """Stories by the name of their request: of all that live, and of the newest that ended."""

    def __init__(self) -> None:
        self._live: dict[str, StoryLog] = {}
        self._ended: dict[str, StoryLog] = {}

    def begin(self, name: str, story: StoryLog) -> None:
        """A request of that name lives. Names are people's: the newest of equal ones is told."""
        self._ended.pop(name, None)
        self._live[name] = story

    def end(self, name: str, story: StoryLog) -> None:
        """The request ended."""
        if self._live.get(name) is story:
            del self._live[name]
        self._ended.pop(name, None)
        self._ended[name] = story
        if len(self._ended) > _TOLD:
            del self._ended[next(iter(self._ended))]

    def find(self, name: str) -> tuple[StoryEntry, ...]:
        """The entries of the newest request of that name, none when it is unknown."""
        story = self._live.get(name) or self._ended.get(name)
        return story.entries() if story else ()
