"""The queue: choices in the order of the policy, and requests that wait for their first step counted."""

from ..core.request import Choice, Request, State
from .demand import Demand
from .order import Order
from .reasons import WaitClock

_SLACK = 64  # entries of choices that left, beyond as many as wait, before they are swept out


class Waiting:
    """All choices that wait."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._clock = WaitClock()
        self._tickets = 0
        self._entries = 0  # in the order's lines, at most
        self.num_choices = 0
        self.new = Demand()  # of requests that no step has computed yet

    @property
    def num_new(self) -> int:
        """Requests that no step has computed yet."""
        return self.new.requests

    @property
    def num_new_tokens(self) -> int:
        """Prompt tokens of those."""
        return self.new.tokens

    @property
    def blocked(self) -> str:
        """What the head waits for, empty when nothing is known to block it."""
        return self._clock.reason

    def block(self, reason: str, now: float) -> None:
        """From now on the head waits for this; empty: for nothing but the next step."""
        self._clock.turn(reason, now)

    def told_wait(self, choice: Choice, now: float) -> str:
        """What kept the queue from moving since the choice was pushed, in words; empty when nothing did."""
        return self._clock.told(choice.mark, now)

    def push(self, choice: Choice, now: float) -> None:
        """Queue a choice. A preempted one goes where its arrival puts it: before all that came later."""
        request = choice.request
        choice.state = State.WAITING
        choice.mark = self._clock.mark(now)
        self._line_up(choice)
        self.num_choices += 1
        if request.started < 0 and not request.is_new:
            request.is_new = True
            self.new.add(request)

    def head(self, now: float) -> Choice | None:
        """The choice that is next, still queued."""
        return self._order.head(now)

    def park(self, choice: Choice) -> None:
        """A choice waits apart, for its own reason; it is counted on."""
        self._tickets += 1
        choice.ticket = self._tickets

    def unpark(self, choice: Choice) -> None:
        """A choice that waited apart goes back to its place."""
        self._line_up(choice)

    def leave(self, choice: Choice) -> None:
        """Take a choice out, wherever it stands. Its next state is the caller's to set, before `head`."""
        request = choice.request
        choice.ticket = -1
        self.num_choices -= 1
        if self._entries > 2 * self.num_choices + _SLACK:
            lines = list(self._order.lines())
            for line in lines:
                line.sweep()
            self._entries = sum(map(len, lines))
        if request.is_new:
            request.is_new = False
            self.new.remove(request)

    def bound_output(self, request: Request, most: int) -> None:
        """From now on the choices of a request, which may wait here, have at most so many tokens."""
        if request.is_new:
            self.new.remove(request)
        request.max_output = most
        if request.is_new:
            self.new.add(request)

    def choices(self) -> list[Choice]:
        """All that wait in line; for checks."""
        return [choice for line in self._order.lines() for choice in line.choices()]

    def _line_up(self, choice: Choice) -> None:
        self._tickets += 1
        self._entries += 1
        choice.ticket = self._tickets
        self._order.push(choice)
