"""Metrics of processes: which are up, how often they were restarted, what remains of those that are gone."""

import os
from collections.abc import Mapping
from pathlib import Path


def mark_dead(metrics: Path, pid: int) -> None:
    """Drop the gauges that process `pid` left in the metrics directory; its counters stay."""
    from prometheus_client.multiprocess import mark_process_dead  # slow to load, and rarely needed

    mark_process_dead(pid, str(metrics))  # type: ignore[no-untyped-call]


class ProcessMetrics:
    """What a supervisor exports. Made once a process: where files go is settled with the library's import."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the metrics directory of the server."""
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
        from prometheus_client import CollectorRegistry, Counter, Gauge

        self.registry = CollectorRegistry()
        self._up = Gauge(
            "octavo_process_up",
            "1 while a process of the server lives. 0 for long: the log says why it does not start again.",
            ["process"],
            multiprocess_mode="livesum",
            registry=self.registry,
        )
        self._restarts = Counter(
            "octavo_process_restarts",
            "Restarts of processes that ended. Rising: read the log for what ended them.",
            ["process"],
            registry=self.registry,
        )
        self._workers = Counter(
            "octavo_worker_restarts",
            "Restarts of workers, each a pause for all requests. Rising: look at the device and the log.",
            registry=self.registry,
        )
        self._seen: dict[str, int] = {}

    def update(self, up: Mapping[str, bool], restarts: Mapping[str, int]) -> None:
        """Export which processes live, and the restarts of each since the server's start."""
        for role, lives in up.items():
            self._up.labels(role).set(lives)
        for role, count in restarts.items():
            gained = count - self._seen.get(role, 0)
            self._seen[role] = count
            self._restarts.labels(role).inc(gained)
            if role.startswith("worker"):
                self._workers.inc(gained)
