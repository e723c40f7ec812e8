"""When a process that ended is started again: at once, a little later, or not at all."""

from dataclasses import dataclass

_FIRST_WAIT = 0.5  # seconds; doubles with each further end without progress
_LONGEST_WAIT = 8.0
_APART = 1.0  # seconds between two starts of one process, whatever was achieved between them


@dataclass(slots=True)
class _Record:
    """What is known of one process."""

    count: int = 0  # ends without progress between them
    progress: int = 0  # at the last end
    started: float = float("-inf")


class Restarts:
    """Counts ends. An end counts together with the one before it only if nothing was achieved between."""

    def __init__(self, limit: int) -> None:
        """`limit`: restarts of one process without progress between them; 0 for none at all."""
        self._limit = limit
        self._records: dict[str, _Record] = {}

    @property
    def limit(self) -> int:
        return self._limit

    def started(self, role: str, now: float) -> None:
        """A process was started."""
        self._records.setdefault(role, _Record()).started = now

    def ended(self, role: str, now: float, progress: int) -> float | None:
        """When to start the process again, None for never. `progress` grows with each step."""
        record = self._records.setdefault(role, _Record())
        if progress > record.progress:
            record.count = 0
        record.progress = progress
        if record.count >= self._limit:
            return None
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (record.count - 1)) if record.count else 0.0
        record.count += 1
        return max(now + wait, record.started + _APART)
