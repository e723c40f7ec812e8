"""When a process that ended starts again."""

from hypothesis import given
from hypothesis import strategies as st

from octavo.frontend.supervisor.restarts import Restarts

ROLE = "worker-0-0"


def test_a_limit_of_none_restarts_nothing() -> None:
    assert Restarts(0).ended(ROLE, 10.0, progress=5) is None


def test_the_first_restart_is_at_once_and_further_ones_back_off() -> None:
    restarts = Restarts(8)
    waits = [restarts.ended(ROLE, 10.0, progress=0) for _ in range(9)]
    assert waits == [10.0, 10.5, 11.0, 12.0, 14.0, 18.0, 18.0, 18.0, None]


def test_ends_with_a_step_between_them_are_no_storm() -> None:
    restarts = Restarts(1)
    for step in range(1, 50):
        assert restarts.ended(ROLE, 100.0 * step, progress=step) == 100.0 * step
    assert restarts.ended(ROLE, 9000.0, progress=49) is None


def test_processes_are_counted_each_for_itself() -> None:
    restarts = Restarts(1)
    assert restarts.ended(ROLE, 10.0, progress=0) == 10.0
    assert restarts.ended("scheduler", 10.0, progress=0) == 10.0
    assert restarts.ended(ROLE, 10.0, progress=0) is None


def test_a_process_that_ends_right_after_its_start_is_not_started_in_a_tight_loop() -> None:
    restarts = Restarts(3)
    restarts.started(ROLE, 10.0)
    assert restarts.ended(ROLE, 10.1, progress=1) == 11.0


@given(st.integers(1, 5), st.lists(st.integers(0, 2), max_size=60))
def test_it_gives_up_exactly_behind_the_limit_of_ends_without_progress(limit: int, gains: list[int]) -> None:
    restarts, progress, since, now = Restarts(limit), 0, 0, 0.0
    for gain in gains:
        progress, now = progress + gain, now + 1.0
        since = 0 if gain else since
        at = restarts.ended(ROLE, now, progress)
        assert (at is None) == (since >= limit)
        if at is None:
            return
        assert now <= at <= now + 8.0
        since += 1
