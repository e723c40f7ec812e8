"""The start of a worker, cut into timed phases without gaps: their sum is the whole."""

import time

from ..protocol.lifecycle import Phase


class StartPhases:
    """Which phase the start is in and how long each took. One thread writes, another may read `current`."""

    def __init__(self, first: str) -> None:
        self._began = time.perf_counter()
        self._done: list[Phase] = []
        self.current = first
        self.fraction = 0.0

    def enter(self, name: str) -> None:
        """End the current phase and begin the next."""
        now = time.perf_counter()
        self._done.append(Phase(self.current, now - self._began))
        self._began, self.current, self.fraction = now, name, 0.0

    def report(self, fraction: float) -> None:
        """How much of the current phase is done."""
        self.fraction = fraction

    def finish(self) -> tuple[Phase, ...]:
        """End the current phase and return all, in order."""
        self.enter("ready")
        return tuple(self._done)


def describe(phases: tuple[Phase, ...]) -> str:
    """One line for the log: the total, then each phase."""
    parts = ", ".join(f"{phase.name} {phase.seconds:.2f}" for phase in phases)
    return f"{sum(phase.seconds for phase in phases):.2f} s ({parts})"
