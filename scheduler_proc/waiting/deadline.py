"""The order `deadline`: who has the least time left goes first, as long as there is time left at all."""

from collections.abc import Iterable

from ..core.request import Choice, Request
from .line import Line
from .order import Fcfs

_PATIENCE = 60.0  # seconds: what a request without a deadline is taken to bear
_LATE_EVERY = 8  # one start in so many goes to the oldest request whose time is over


class Deadline(Fcfs):
    """Least slack first: by the latest moment at which the reading of the prompt must begin.

    That is where the first token is due, `target_ttft` seconds behind the arrival or at the request's own
    deadline, less the time to read the prompt behind the steps in flight. Over capacity the least slack alone
    would make everybody late: who cannot be in time any more stands in a second line, by arrival. It gets
    every eighth start, so that nobody starves, and whatever the first line leaves.
    """

    def __init__(self, target_ttft: float) -> None:
        super().__init__()
        self._target = target_ttft or _PATIENCE
        self._late = Line()
        self._starts = 0  # since the last one from the second line
        self._next_is_late = False

    def arrive(self, request: Request, reading: float) -> None:
        # One step that stalled makes the expected reading long: half of the time always remains to start in.
        due = min(request.arrived + self._target, request.deadline)
        request.key = due - min(reading, (due - request.arrived) / 2)

    def head(self, now: float) -> Choice | None:
        in_time = self._in_time(now)
        late = self._late.front()
        self._next_is_late = late is not None and (in_time is None or self._starts >= _LATE_EVERY - 1)
        return late[1] if late is not None and self._next_is_late else in_time

    def _in_time(self, now: float) -> Choice | None:
        while (front := self._line.front()) is not None:
            key, choice = front
            if key >= now or choice.request.started >= 0:
                return choice  # what has begun to answer goes on
            self._line.pop()
            self._late.push(0.0, choice)
        return None

    def start(self, choice: Choice, tokens: int) -> None:
        self._starts = 0 if self._next_is_late else self._starts + 1

    def lines(self) -> Iterable[Line]:
        return self._line, self._late
