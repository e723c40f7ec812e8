"""Metrics: exact, never falling, never fatal."""

import logging
from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY

from octavo.protocol.codec import FINGERPRINT
from octavo.protocol.requests import ClientHello
from octavo.scheduler_proc.core.stats import Stats, StepTimes
from octavo.scheduler_proc.metrics import Metrics

from .world import World, make_scheduler


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    before = set(REGISTRY._collector_to_names)
    yield Metrics()
    for collector in set(REGISTRY._collector_to_names) - before:
        REGISTRY.unregister(collector)


def export(metrics: Metrics, world: World, times: list[float] | None = None) -> None:
    metrics.update(world.core.stats, world.core.engine_stats(), times or [], journal_active=False)


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"octavo_{name}", labels)


def test_gauges_and_counters_follow_the_core(metrics: Metrics) -> None:
    world = make_scheduler(max_num_seqs=1)
    for seed in (1, 2):
        world.submit(range(2, 12), ignore_eos=True, seed=seed)
    for _ in range(3):
        world.turn()
        world.step()
    export(metrics, world)
    assert (value("num_requests_running"), value("num_requests_waiting")) == (1, 1)
    blocks = [value("kv_blocks", state=state) for state in ("live", "cached", "free")]
    assert blocks[0] and sum(count or 0 for count in blocks) == 32 + 64
    assert value("kv_cache_usage_perc") == (blocks[0] or 0) / 96
    world.submit([2], max_tokens=64)
    world.run()
    export(metrics, world)
    assert value("num_requests_running") == value("kv_blocks", state="live") == 0
    assert value("generation_tokens_total") == world.core.stats.generated_tokens
    assert value("prompt_tokens_total") == 20
    assert value("prefix_cache_queries_total") == 20 and value("prefix_cache_hits_total") == 8
    assert value("rejected_total", reason="ContextLengthError") == 1
    assert value("step_seconds_count", phase="device") == world.core.stats.steps == value("steps_total")


def test_frontends_count_what_they_deliver(metrics: Metrics) -> None:
    world = make_scheduler()
    world.client(ClientHello(FINGERPRINT, "frontend-0"))
    world.submit([2, 3], ignore_eos=True)
    world.run()
    export(metrics, world)
    assert world.core.stats.generated_tokens == 8
    assert not value("generation_tokens_total") and not value("prompt_tokens_total")


def test_a_counter_never_falls(metrics: Metrics) -> None:
    stats, world = Stats(), make_scheduler()
    for total, shown in ((10, 10), (8, 10), (9, 10), (12, 12)):
        world.core.state.stats = stats
        stats.discarded_tokens = total
        export(metrics, world)
        assert value("discarded_tokens_total") == shown


def test_steps_are_observed_by_phase(metrics: Metrics) -> None:
    world = make_scheduler()
    world.core.stats.step_times.append(StepTimes(0.25, 0.5, 1.0))
    export(metrics, world, [0.125])
    phases = {"device": 0.25, "worker": 0.5, "flight": 1.0, "scheduler": 0.125}
    assert {phase: value("step_seconds_sum", phase=phase) for phase in phases} == phases
    assert world.core.stats.step_times == []


def test_metrics_that_cannot_be_written_are_off(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_scheduler()

    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(metrics, "_set_gauges", fail)
    with caplog.at_level(logging.ERROR):
        export(metrics, world)
        export(metrics, world)
    assert [record.message for record in caplog.records] == ["metrics are off: they cannot be written"]
