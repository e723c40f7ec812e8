"""What a refused request is told: how long it would have waited, on loads from a flood to long documents."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.protocol.replies import Rejected
from octavo.scheduler_proc.batching.forecast import _LIKELY, _Turnover
from octavo.scheduler_proc.batching.lengths import OutputLengths, Survival
from octavo.scheduler_proc.core.request import Choice
from octavo.scheduler_proc.study.simulate import Simulation
from octavo.scheduler_proc.study.traces import (
    Arrival,
    agent_loops,
    bursty_chat,
    long_documents,
    two_tenants,
)

from .world import make_scheduler


@dataclass(frozen=True)
class Refusal:
    """A request that was refused, with what it was told."""

    at: float
    before: int  # requests that had begun
    waiting: int
    forecast: float


class Watched(Simulation):
    """Notes when each request began, and every refusal."""

    def __init__(self, trace: list[Arrival], **config: object) -> None:
        self.starts: list[float] = []
        self.refusals: list[Refusal] = []
        super().__init__(trace, max_num_seqs=64, **config)  # type: ignore[arg-type]
        waiting = self.core.state.waiting
        leave = waiting.leave

        def watched(choice: Choice) -> None:
            if choice.request.is_new:
                self.starts.append(self.now)
            leave(choice)

        waiting.leave = watched  # type: ignore[method-assign]

    def _take(self, message: object) -> None:
        if isinstance(message, Rejected):
            waiting = self.core.state.waiting.num_new
            self.refusals.append(Refusal(self.now, len(self.starts), waiting, message.retry_after))
        super()._take(message)

    def ratios(self) -> list[float]:
        """Forecast / truth: the time until all that waited at the refusal had begun."""
        return [
            refusal.forecast / (self.starts[refusal.before + refusal.waiting - 1] - refusal.at)
            for refusal in self.refusals
        ]


LOADS = {
    "chat": (bursty_chat(60.0, 10.0), {"max_queued_requests": 64}),
    "a short queue": (bursty_chat(60.0, 10.0), {"max_queued_requests": 16}),
    "a flood on an idle server": (bursty_chat(600.0, 1.5), {"max_queued_requests": 64}),
    "documents": (long_documents(10.0, 12.0), {"max_queued_requests": 8}),
    "prompt tokens": (long_documents(10.0, 20.0), {"max_queued_tokens": 100_000}),
    "agents": (agent_loops(200.0, 12.0), {"max_queued_requests": 64}),
    "tenants": (two_tenants(1.5, 16.0, greedy=20.0), {"max_queued_requests": 64}),
    "at a pace": (long_documents(10.0, 12.0), {"max_queued_requests": 16, "target_itl_ms": 40.0}),
    "short of memory": (bursty_chat(60.0, 8.0), {"max_queued_requests": 64, "num_blocks": 400}),
}


@pytest.mark.parametrize("load", LOADS)
def test_every_refused_request_gets_a_forecast_within_a_factor_of_two(load: str) -> None:
    trace, config = LOADS[load]
    ratios = Watched(trace, **config).run().ratios()  # type: ignore[attr-defined]
    assert len(ratios) > 3
    assert min(ratios) >= 0.5 and max(ratios) <= 2.0, f"{min(ratios):.2f} to {max(ratios):.2f}"


@pytest.mark.full
@pytest.mark.parametrize("seed", range(8))
def test_forecasts_over_longer_loads(seed: int) -> None:
    for trace in (bursty_chat(60.0, 30.0, seed), two_tenants(1.5, 20.0, seed, greedy=20.0)):
        for bound in (32, 128):
            ratios = Watched(trace, max_queued_requests=bound).run().ratios()  # type: ignore[attr-defined]
            assert min(ratios) >= 0.5 and max(ratios) <= 2.0, f"{min(ratios):.2f} to {max(ratios):.2f}"


def test_nothing_is_said_before_a_step_was_seen_and_no_wait_where_none_is() -> None:
    world = make_scheduler(max_num_seqs=2)
    sent = [world.submit([2, n], max_tokens=20, ignore_eos=True) for n in range(4)]
    told = [request.accepted.forecast_ms for request in sent if request.accepted]
    assert told == [0.0, -1.0, -1.0, -1.0]
    for _ in range(4):
        world.turn(0.01)
        world.step()
    late = world.submit([2, 9])
    assert late.accepted is not None and late.accepted.forecast_ms > 100


ENDS = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 30)), min_size=1, max_size=6)


@given(ENDS, st.integers(1, 60))
def test_rows_become_free_as_a_simulation_says(rows: list[tuple[int, int]], wanted: int) -> None:
    turnover = _Turnover(
        np.repeat([float(end) for end, _ in rows], _LIKELY),
        np.repeat([float(life) for _, life in rows], _LIKELY),
    )
    time = turnover.until(wanted)

    def freed(at: float) -> float:
        return sum(1 + (at - end) / life for end, life in rows if at >= end)

    assert freed(time + 1e-6) >= wanted - 1e-3
    assert freed(time - 1e-6) <= wanted + 1e-3


def test_the_first_answers_to_end_do_not_pass_for_all() -> None:
    lengths = OutputLengths()
    for _ in range(4):
        lengths.add(10, whole=True)
    going_on = np.full(60, 50, np.int64)
    zero = np.zeros(1, np.int64)
    assert lengths.survival(going_on).quantiles(zero, 64).mean() > 50
    assert lengths.survival(np.zeros(0, np.int64)).quantiles(zero, 64).mean() == 10


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40), st.lists(st.integers(0, 400), max_size=10))
def test_lengths_to_come_are_longer_than_what_is_there_and_ascend(
    ended: list[int], running: list[int]
) -> None:
    produced = np.array(running, np.int64)
    curve = Survival.estimate(np.array(ended, np.int64), np.ones(len(ended), np.bool_), produced)
    found = curve.quantiles(produced, 8)
    assert found.shape == (len(running), 8)
    assert (found > produced[:, None] - 1e-6).all() and (np.diff(found, axis=1) >= -1e-6).all()
