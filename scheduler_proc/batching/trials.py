"""Who killed the worker? What it had in flight comes back in halves, each half alone, until that is known.

A trial ends well when its choices have drawn tokens behind those that were being drawn at the fault, and the
next one begins. When the worker fails again, the halves of that trial are tried. Everything else waits.
"""

from dataclasses import dataclass, field

from ..core.request import Choice, Request, State
from .rows import Rows

_BEHIND = 2  # tokens: as many as may have been in flight


@dataclass(frozen=True, slots=True)
class Trial:
    """Requests that run alone, and how far each choice that was in flight must come."""

    requests: frozenset[Request]
    goals: dict[Choice, int]  # known tokens

    def passed(self, rows: Rows) -> bool:
        """Whether all are past the point of the fault, or ended."""
        return all(_known(choice, rows) >= goal for choice, goal in self.goals.items())


@dataclass(slots=True)
class Trials:
    """The trials of one worker. The last of the list goes on, or is next."""

    num_accused: int = 0  # requests in flight at the last fault
    _pending: list[Trial] = field(default_factory=list)
    _held: list[tuple[int, Choice]] = field(default_factory=list)  # with the ticket: who waits for the end

    def __bool__(self) -> bool:
        return bool(self._pending)

    @property
    def more(self) -> bool:
        """Whether another trial follows the present one."""
        return len(self._pending) > 1

    @property
    def present(self) -> Trial:
        return self._pending[-1]

    def allows(self, choice: Choice) -> bool:
        """Whether a choice may run now."""
        return not self._pending or choice.request in self._pending[-1].requests

    def suspects(self, choice: Choice) -> bool:
        """Whether the choice is to be tried here."""
        return any(choice.request in trial.requests for trial in self._pending)

    def hold(self, choice: Choice) -> None:
        """The choice, parked, waits for trials to end."""
        self._held.append((choice.ticket, choice))

    def held(self) -> list[Choice]:
        """Who waits for trials to end; whoever ended since has another ticket."""
        return [choice for ticket, choice in self._held if choice.ticket == ticket]

    def end(self) -> list[Choice]:
        """The present trial is over. Returns who waited, to be queued again."""
        self._pending.pop()
        held, self._held = self.held(), []
        return held

    def begin(self, requests: list[Request], choices: list[Choice]) -> None:
        """Try requests, two halves one after the other; `choices` of theirs were in flight."""
        half = (len(requests) + 1) // 2
        for part in (requests[half:], requests[:half]):
            if part:
                goals = {
                    choice: min(choice.num_known + _BEHIND, choice.max_length)
                    for choice in choices
                    if choice.request in part
                }
                self._pending.append(Trial(frozenset(part), goals))


def _known(choice: Choice, rows: Rows) -> int:
    if choice.state is State.ENDED:
        return choice.max_length
    return int(rows.num_known[choice.row]) if choice.state is State.RUNNING else choice.num_known
