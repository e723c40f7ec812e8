"""How far one prompt of a request has come: token counts, times, how it ended."""

import time
from collections.abc import Sequence

from ....protocol.errors import RequestAbortedError, RequestTimeoutError
from ...engine.stream import Stream
from ..metrics.requests import RequestMetrics, RequestSummary
from .chunks import Chunk
from .job import Job

# From how a request fares best to worst.
_REASONS = ("stop", "length", "abort", "timeout", "error")


class Progress:
    """Counts the tokens of a job's choices as they come, and reports its end once.

    Attributes:
        num_tokens: output tokens so far, all choices together.
    """

    def __init__(self, job: Job, metrics: RequestMetrics) -> None:
        self.num_tokens = 0
        self._job = job
        self._metrics = metrics
        self._stream: Stream | None = None  # once it began
        self._last = [0.0] * job.params.n  # when a choice got its last token; 0 before its first
        self._running = job.params.n  # choices
        self._worst = _REASONS[0]
        self._reported = False

    def took(self, chunks: Sequence[Chunk], stream: Stream) -> None:
        """Choices of the job gained something; here `index` is that of the choice in the job."""
        now = time.monotonic()
        for chunk in chunks:
            if count := len(chunk.token_ids):
                self._took_tokens(chunk.index, count, now, stream)
            if chunk.finish_reason is not None:
                self._worst = max(self._worst, chunk.finish_reason, key=_REASONS.index)
                self._running -= 1
        if not self._running:
            self._report(self._worst)

    def failed(self, error: BaseException) -> None:
        """The job ended with an error, unless it has ended before."""
        if isinstance(error, RequestTimeoutError):
            self._report("timeout")
        elif isinstance(error, RequestAbortedError) or not isinstance(error, Exception):
            self._report("abort")
        else:
            self._report("error")

    def _took_tokens(self, choice: int, count: int, now: float, stream: Stream) -> None:
        if self._stream is None:
            self._stream = stream
            self._metrics.first_token(now - self._job.arrived, len(self._job.prompt_ids))
        if before := self._last[choice]:
            self._metrics.waited(now - before, count)
        self._last[choice] = now
        self.num_tokens += count
        self._metrics.tokens(count)

    def _report(self, reason: str) -> None:
        if self._reported:
            return
        self._reported = True
        began = self._stream
        summary = RequestSummary(
            name=self._job.name,
            finished_reason=reason,
            prompt_tokens=len(self._job.prompt_ids),
            generation_tokens=self.num_tokens,
            e2e=time.monotonic() - self._job.arrived,
            queued=None if began is None else began.queued_ms / 1e3,
            prefill=None if began is None else began.prefill_ms / 1e3,
        )
        self._metrics.ended(summary)
