"""The scheduler's numbers for Prometheus: written in batches, off the path of a step, and never fatal."""

import logging

from prometheus_client import Counter, Gauge, Histogram

from ..protocol.replies import EngineStats
from .core.stats import Stats, StepTimes

_log = logging.getLogger(__name__)

_MILLISECONDS = (0.1, 0.2, 0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 50, 75, 100, 150, 250, 500, 1000, 2500, 5000)
_STEP_BUCKETS = tuple(value / 1e3 for value in _MILLISECONDS)


class Metrics:
    """Exports the core's counters. Made once a process: Prometheus registers names globally."""

    def __init__(self) -> None:
        self._broken = False
        self._seen: dict[object, int] = {}
        self._running = _gauge(
            "num_requests_running", "Choices in rows. At the maximum: more rows or less load."
        )
        self._waiting = _gauge("num_requests_waiting", "Choices queued. Growing: load is over capacity.")
        self._usage = _gauge(
            "kv_cache_usage_perc", "Share of KV blocks held, 0 to 1. Near 1: expect waits and preemptions."
        )
        self._blocks = _gauge(
            "kv_blocks", "KV blocks: live are held, cached are free with a reusable prefix.", "state"
        )
        self._counters = {
            name: Counter(f"octavo_{name}", text)
            for name, text in {
                "prefix_cache_queries": "Prompt tokens looked up in the prefix cache.",
                "prefix_cache_hits": "Prompt tokens found in the prefix cache. Low: prompts share little.",
                "num_preemptions": "Choices preempted for lack of KV blocks. Rising: the pool is too small.",
                "discarded_tokens": "Tokens computed past an end, an abort or a stop string.",
                "steps": "Steps completed.",
                # Frontends count under the same two names what they deliver: the words must be theirs.
                "prompt_tokens": "Prompt tokens of requests that got a first token.",
                "generation_tokens": "Output tokens delivered.",
                "worker_resets": "Lives of workers that ended with requests to be taken up again.",
            }.items()
        }
        self._rejected = Counter(
            "octavo_rejected",
            "Requests refused, by kind of error. QueueFullError: load is over bounds.",
            ["reason"],
        )
        self._step = Histogram(
            "octavo_step_seconds",
            "Time of a step by phase: device, worker (with device), flight (plan sent to result applied), "
            "scheduler (result received to plan and deltas sent).",
            ["phase"],
            buckets=_STEP_BUCKETS,
        )
        self._journal = _gauge("journal_active", "1 while events are journalled. 0 after 1: the disk failed.")

    def update(
        self, stats: Stats, gauges: EngineStats, scheduler_times: list[float], *, journal_active: bool
    ) -> None:
        """Bring everything up to date. An error is logged once and ends the export, not the scheduler."""
        if self._broken:
            return
        try:
            self._set_gauges(gauges)
            self._journal.set(journal_active)
            self._count(gauges, stats)
            for times in stats.take_step_times():
                self._observe(times)
            phase = self._step.labels("scheduler")
            for seconds in scheduler_times:
                phase.observe(seconds)
        except Exception:
            self._broken = True
            _log.exception("metrics are off: they cannot be written")

    def _set_gauges(self, gauges: EngineStats) -> None:
        self._running.set(gauges.running)
        self._waiting.set(gauges.waiting)
        self._usage.set(gauges.blocks_live / gauges.blocks_total if gauges.blocks_total else 0.0)
        self._blocks.labels("live").set(gauges.blocks_live)
        self._blocks.labels("cached").set(gauges.blocks_cached)
        self._blocks.labels("free").set(gauges.blocks_total - gauges.blocks_live - gauges.blocks_cached)

    def _count(self, gauges: EngineStats, stats: Stats) -> None:
        totals = {
            "prefix_cache_queries": gauges.prefix_queries,
            "prefix_cache_hits": gauges.prefix_hits,
            "num_preemptions": gauges.preemptions,
            "discarded_tokens": gauges.discarded_tokens,
            "steps": gauges.steps,
            "prompt_tokens": stats.direct_prompt_tokens,
            "generation_tokens": stats.direct_tokens,
            "worker_resets": stats.worker_resets,
        }
        for name, total in totals.items():
            self._advance(self._counters[name], name, total)
        for reason, total in stats.rejected.items():
            self._advance(self._rejected.labels(reason), ("rejected", reason), total)

    def _advance(self, counter: Counter, key: object, total: int) -> None:
        """A counter never falls: should a total do so, its counter waits until the total is past it."""
        seen = self._seen.get(key, 0)
        if total > seen:
            counter.inc(total - seen)
            self._seen[key] = total

    def _observe(self, times: StepTimes) -> None:
        self._step.labels("device").observe(times.device)
        self._step.labels("worker").observe(times.worker)
        self._step.labels("flight").observe(times.flight)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"octavo_{name}", text, list(labels), multiprocess_mode="livesum")
