"""The invariants: each damage is found, and told with the story of its request."""

from collections.abc import Callable

import pytest

from octavo.scheduler_proc.core.request import State
from octavo.scheduler_proc.core.state import SchedulerState
from octavo.scheduler_proc.core.validate import InvariantError, validate, validate_idle

from .world import World, make_scheduler


def running() -> World:
    world = make_scheduler(max_num_seqs=2)
    for seed in range(3):
        world.submit([2, 3, 4, 5, 6 + seed], ignore_eos=True, seed=seed)
    for _ in range(3):
        world.turn()
        world.step()
    world.turn()
    return world


def _lose_reference(state: SchedulerState) -> None:
    state.workers[0].memory.groups[0].pool.refs[0] += 1


def _lose_block(state: SchedulerState) -> None:
    state.workers[0].memory.groups[1].tables[0].pop()


def _overrun(state: SchedulerState) -> None:
    state.workers[0].rows.max_length[0] = 6


def _forget_token(state: SchedulerState) -> None:
    state.workers[0].rows.tail_len[0] = 0


def _compute_twice(state: SchedulerState) -> None:
    state.workers[0].rows.num_computed[1] -= 1


def _swap_rows(state: SchedulerState) -> None:
    rows = state.workers[0].rows
    rows.choices[0], rows.choices[1] = rows.choices[1], rows.choices[0]


def _lose_queued(state: SchedulerState) -> None:
    head = state.waiting.head(0.0)
    assert head is not None
    head.state = State.ENDED


def _lose_step(state: SchedulerState) -> None:
    state.workers[0].flight.pop()


_ROW_DAMAGES = (_overrun, _forget_token, _compute_twice, _swap_rows)


@pytest.mark.parametrize("damage", [_lose_reference, _lose_block, _lose_queued, _lose_step, *_ROW_DAMAGES])
def test_damage_is_found(damage: Callable[[SchedulerState], None]) -> None:
    state = running().core.state
    validate(state)
    damage(state)
    with pytest.raises(InvariantError):
        validate(state)


def test_a_failure_tells_the_story() -> None:
    state = running().core.state
    _overrun(state)
    with pytest.raises(InvariantError, match=r"an end was overrun.*req-0.*queued.*starts.*first token"):
        validate(state)


def test_nothing_may_be_left_at_idle() -> None:
    world = running()
    validate_idle(world.core.state)
    world.run()
    validate_idle(world.core.state)
    world.core.state.workers[0].memory.groups[0].pool.take(1)
    with pytest.raises(InvariantError, match="live blocks at idle"):
        world.core.check_idle()
