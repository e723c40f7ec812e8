"""How long the queue is in time: from how fast it moved lately."""

_WEIGHT = 0.1


class QueueForecast:
    """Mean time between two requests' leaving the queue while others waited."""

    def __init__(self) -> None:
        self._interval = -1.0  # seconds, -1 while unknown
        self._last = -1.0

    def moved(self, now: float, *, waiting: int) -> None:
        """A request left the queue for its first step, and `waiting` stay behind it."""
        if self._last >= 0:
            gap = now - self._last
            known = self._interval >= 0
            self._interval = self._interval + _WEIGHT * (gap - self._interval) if known else gap
        self._last = now if waiting else -1.0

    def wait(self, position: int) -> float:
        """Seconds until the request with `position` others ahead is first computed, -1 when unknown."""
        if position == 0:
            return 0.0
        return self._interval * (position + 1) if self._interval >= 0 else -1.0
