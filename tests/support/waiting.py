"""Waiting for a condition with a deadline, for tests of real processes."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], *, within: float, what: str) -> float:
    """Poll until `condition` holds, at most `within` seconds; returns the seconds it took."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > within:
            raise AssertionError(f"not within {within} s: {what}")
        time.sleep(0.02)
    return time.monotonic() - start
