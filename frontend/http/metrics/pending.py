"""Observations kept in plain lists until they are written: a token costs no call into Prometheus."""

from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Histogram


class PendingHistogram(Histogram):
    """A histogram that takes observations in memory and is written by `flush`."""

    def __init__(self, name: str, text: str, bounds: Sequence[float], registry: CollectorRegistry) -> None:
        super().__init__(name, text, buckets=bounds, registry=registry)
        self._bounds = list(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Observe `value` so many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._total += value * times

    def flush(self) -> None:
        """Write what was observed since the last call."""
        for place, count in enumerate(self._counts):
            if count:
                self._counts[place] = 0
                self._buckets[place].inc(count)
        if self._total:
            total, self._total = self._total, 0.0
            self._sum.inc(total)
