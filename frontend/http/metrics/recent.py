"""The last requests that ended, for people who look."""

import time
from collections import deque

import msgspec

_KEPT = 50


class RecentRequest(msgspec.Struct):
    """What a request came to. Times are in seconds, None where it did not get so far."""

    name: str  # /debug/requests has its story
    ended_at: float  # since the epoch
    finished_reason: str
    prompt_tokens: int
    generation_tokens: int
    e2e: float
    queued: float | None
    prefill: float | None


class RecentRequests:
    """Keeps the last few."""

    def __init__(self) -> None:
        self._kept: deque[RecentRequest] = deque(maxlen=_KEPT)

    def add(
        self,
        name: str,
        finished_reason: str,
        prompt_tokens: int,
        generation_tokens: int,
        *,
        e2e: float,
        queued: float | None,
        prefill: float | None,
    ) -> None:
        """A request has ended."""
        self._kept.appendleft(
            RecentRequest(
                name, time.time(), finished_reason, prompt_tokens, generation_tokens, e2e, queued, prefill
            )
        )

    def latest(self) -> list[RecentRequest]:
        """The requests, the latest first."""
        return list(self._kept)
