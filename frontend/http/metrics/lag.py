"""A watch on the event loop: how late it runs what is due."""

import asyncio
import time

from .requests import RequestMetrics

_EVERY = 0.1  # seconds
_FLUSH_AFTER = 5  # looks


async def watch_loop(metrics: RequestMetrics) -> None:
    """Measure the loop's lag and write what was counted, until cancelled."""
    looks = 0
    while True:
        due = time.monotonic() + _EVERY
        await asyncio.sleep(_EVERY)
        metrics.lagged(time.monotonic() - due)
        looks += 1
        if looks % _FLUSH_AFTER == 0:
            metrics.flush()
