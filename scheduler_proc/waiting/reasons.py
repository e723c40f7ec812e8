"""What the queue waited for, and how long: so that every request can be told what it waited for."""

FOR_A_WORKER = "for a worker to be ready"
BY_FORECAST = "for blocks, by the forecast"
FOR_BLOCKS = "for blocks"
MEMORY = frozenset({BY_FORECAST, FOR_BLOCKS})  # with these, a free row is of no use

_LEAST = 0.5e-3  # seconds: what lasted less is not told

Mark = tuple[float, dict[str, float]]  # a moment, and the seconds of each reason up to it


class WaitClock:
    """Sums up the time for which each reason kept the head of the queue from starting.

    Whoever stands behind the head waits for the same: a mark at its arrival and one at its start tell it all.
    """

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._since = 0.0
        self.reason = ""

    def turn(self, reason: str, now: float) -> None:
        """From now on the head waits for another reason; empty: for none."""
        if reason != self.reason:
            self._settle(now)
            self.reason = reason

    def mark(self, now: float) -> Mark:
        """Where the clock stands."""
        self._settle(now)
        return now, self._sums

    def told(self, mark: Mark, now: float) -> str:
        """What the time since a mark went to, the longest first, in words."""
        self._settle(now)
        since, sums = mark
        parts = [(seconds - sums.get(reason, 0.0), reason) for reason, seconds in self._sums.items()]
        parts = sorted((part for part in parts if part[0] >= _LEAST), reverse=True)
        if now - since < _LEAST:
            return ""
        told = ", ".join(f"{seconds * 1e3:.1f} ms {reason}" for seconds, reason in parts)
        return f", waited {(now - since) * 1e3:.1f} ms: {told or 'for the next step'}"

    def _settle(self, now: float) -> None:
        if self.reason and now > self._since:
            # A new one each time: marks hold the old one.
            self._sums = self._sums | {self.reason: self._sums.get(self.reason, 0.0) + now - self._since}
        self._since = now
