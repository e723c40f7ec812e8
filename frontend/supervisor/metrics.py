"""Metrics of processes that are gone: their gauges go, their counters stay."""

from pathlib import Path


def mark_dead(metrics: Path, pid: int) -> None:
    """Drop the gauges that process `pid` left in the metrics directory."""
    from prometheus_client.multiprocess import mark_process_dead  # slow to load, and rarely needed

    mark_process_dead(pid, str(metrics))  # type: ignore[no-untyped-call]
