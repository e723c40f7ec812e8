"""Metrics of requests: counted while they run in plain numbers, written in batches, never fatal."""

import logging
from collections.abc import Callable

import msgspec
from prometheus_client import CollectorRegistry, Counter

from .pending import PendingHistogram
from .recent import RecentRequests

_log = logging.getLogger(__name__)

_MILLISECONDS = (
    1,
    2,
    3,
    4,
    5,
    6,
    8,
    10,
    12,
    15,
    20,
    25,
    30,
    40,
    50,
    75,
    100,
    150,
    250,
    500,
    1000,
    2500,
    5000,
)
_LATENCY = tuple(value / 1e3 for value in _MILLISECONDS)
_WAITS = (*_LATENCY, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_TOKENS = tuple(2.0**power for power in range(21))


class RequestSummary(msgspec.Struct, gc=False):
    """What a request came to. Times are in seconds, None where it did not get so far."""

    name: str
    finished_reason: str  # of the choice that fared worst
    prompt_tokens: int
    generation_tokens: int
    e2e: float
    queued: float | None = None  # in the scheduler, until the first step
    prefill: float | None = None  # from then to the first token


class RequestMetrics:
    """Counts and times of requests. `first_token`, `tokens` and `waited` are cheap enough for every token."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, text: str, bounds: tuple[float, ...]) -> PendingHistogram:
            return PendingHistogram(f"octavo_{name}", text, bounds, registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"octavo_{name}", text, labels, registry=registry)

        self._ttft = histogram(
            "time_to_first_token_seconds",
            "From a request's arrival to its first token. Rising: queues are long or prompts are.",
            _WAITS,
        )
        self._itl = histogram(
            "inter_token_latency_seconds",
            "Between tokens of a choice. Rising: batches are larger, or long prompts disturb decoding.",
            _LATENCY,
        )
        self._e2e = histogram("e2e_request_latency_seconds", "From a request's arrival to its end.", _WAITS)
        self._queue = histogram(
            "request_queue_time_seconds",
            "From a request's arrival at the scheduler to its first step. Rising: load is over capacity.",
            _WAITS,
        )
        self._prefill = histogram(
            "request_prefill_time_seconds", "From a request's first step to its first token.", _WAITS
        )
        self._prompt_size = histogram("request_prompt_tokens", "Prompt tokens of a request.", _TOKENS)
        self._output_size = histogram(
            "request_generation_tokens", "Output tokens of a request, all choices together.", _TOKENS
        )
        self._ends = counter(
            "request_success",
            "Requests that were accepted and ended, by reason; of several choices the one that fared worst.",
            "finished_reason",
        )
        self._prompt_tokens = counter("prompt_tokens", "Prompt tokens of requests that got a first token.")
        self._generation_tokens = counter("generation_tokens", "Output tokens delivered.")
        self._http = counter("http_requests", "HTTP requests answered.", "route", "method", "status")
        self._lag = histogram(
            "event_loop_lag_seconds",
            "How late the frontend's loop runs what is due. Rising: it needs more frontend processes.",
            _LATENCY,
        )
        self.recent = RecentRequests()
        self._new_prompt_tokens = 0
        self._new_tokens = 0
        self._broken = False

    def first_token(self, waited: float, prompt_tokens: int) -> None:
        """A request got its first token, so many seconds after it arrived."""
        self._ttft.add(waited)
        self._new_prompt_tokens += prompt_tokens

    def tokens(self, count: int) -> None:
        """So many output tokens were delivered."""
        self._new_tokens += count

    def waited(self, seconds: float, count: int) -> None:
        """A choice got `count` more tokens so many seconds after the last."""
        if count:
            self._itl.add(seconds / count, count)

    def ended(self, summary: RequestSummary) -> None:
        """A request has ended, however it did; everything counted so far is written."""
        self.recent.add(
            summary.name,
            summary.finished_reason,
            summary.prompt_tokens,
            summary.generation_tokens,
            e2e=summary.e2e,
            queued=summary.queued,
            prefill=summary.prefill,
        )
        self._e2e.add(summary.e2e)
        self._prompt_size.add(summary.prompt_tokens)
        self._output_size.add(summary.generation_tokens)
        if summary.queued is not None:
            self._queue.add(summary.queued)
        if summary.prefill is not None:
            self._prefill.add(summary.prefill)
        self._guard(lambda: self._ends.labels(summary.finished_reason).inc())
        self.flush()

    def answered(self, route: str, method: str, status: int) -> None:
        """An HTTP request was answered."""
        self._guard(lambda: self._http.labels(route, method, str(status)).inc())

    def lagged(self, seconds: float) -> None:
        """The loop ran something so much later than it was due."""
        self._lag.add(max(0.0, seconds))

    def flush(self) -> None:
        """Write what was counted since the last call."""
        self._guard(self._write)

    def _write(self) -> None:
        for histogram in (
            self._ttft,
            self._itl,
            self._e2e,
            self._queue,
            self._prefill,
            self._prompt_size,
            self._output_size,
            self._lag,
        ):
            histogram.flush()
        prompt_tokens, self._new_prompt_tokens = self._new_prompt_tokens, 0
        tokens, self._new_tokens = self._new_tokens, 0
        self._prompt_tokens.inc(prompt_tokens)
        self._generation_tokens.inc(tokens)

    def _guard(self, write: Callable[[], None]) -> None:
        """Metrics that cannot be written are off from then on; whoever counted goes on."""
        if self._broken:
            return
        try:
            write()
        except Exception:
            self._broken = True
            _log.exception("metrics are off: they cannot be written")
