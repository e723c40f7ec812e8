"""Requests that kill their worker: found by halving, refused alone, while the others go on."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.protocol.columns import unpack_i32
from octavo.protocol.ids import FinishReason
from octavo.protocol.lifecycle import ProcessEnded, WorkerFailed
from octavo.protocol.steps import StepPlan
from octavo.scheduler_proc.core.events import FromSupervisor, WorkerGone

from .world import Sent, World, make_scheduler

PID = 4711  # of every worker of a world
POISON = 9  # a prompt that holds this token kills whoever computes it


def is_poisoned(world: World, plan: StepPlan) -> bool:
    assert world.worker is not None
    rows = {row: held.new for row, held in world.worker.rows.items()} | {new.row: new for new in plan.new}
    computed = (rows[row] for row in unpack_i32(plan.row).tolist())
    return any(POISON in unpack_i32(new.tokens)[: new.prompt_len] for new in computed)


def fail(world: World, *, fault: bool = True, noticed: bool = False) -> None:
    """The worker's process is gone, and the next one is ready; `noticed`: a plan met the closed line."""
    world.plans.clear()
    if noticed:
        world.handle(WorkerGone(world.now, 0, 0))
    world.handle(FromSupervisor(world.now, ProcessEnded(0, 0, PID, fault, "was ended by SIGABRT")))
    world.start_worker()


def run(world: World, *, noticed: bool = False) -> list[int]:
    """Let the worker die of poison whenever it meets some; returns how many requests it had each time."""
    faults: list[int] = []
    for _ in range(3000):
        world.turn()
        if not world.plans:
            return faults
        if is_poisoned(world, world.plans[0]):
            fail(world, noticed=noticed)
            faults.append(world.core.state.workers[0].trials.num_accused)
        else:
            world.step()
    raise AssertionError("no end")


def steps(world: World, count: int) -> None:
    for _ in range(count):
        world.turn()
        world.step()


def check_refused(sent: Sent) -> None:
    for answer in sent.answers:
        assert answer.finish is FinishReason.ERROR
        assert answer.fault is not None and answer.fault.kind == "RequestFailedError"
        assert "SIGABRT" in answer.fault.message


def check_whole(world: World, sent: Sent, length: int = 12) -> None:
    world.check(sent)
    assert [len(answer.tokens) for answer in sent.answers] == [length] * len(sent.answers)


def submit(world: World, prompts: Sequence[Sequence[int]], **params: object) -> list[Sent]:
    settings = {"max_tokens": 12, "ignore_eos": True} | params
    return [world.submit(prompt, seed=at, **settings) for at, prompt in enumerate(prompts)]  # type: ignore[arg-type]


@pytest.mark.parametrize("place", range(8))
def test_one_of_eight_is_found_by_halving_and_the_others_are_whole(place: int) -> None:
    world = make_scheduler(max_num_seqs=8, num_blocks=64, max_num_batched_tokens=64)
    prompts = [[2, 3, 4, at + 10] for at in range(8)]
    prompts[place].append(POISON)
    sent = submit(world, prompts)
    faults = run(world)
    assert faults == [8, 4, 2, 1]
    for at, one in enumerate(sent):
        check_refused(one) if at == place else check_whole(world, one)
    world.check_idle()


def test_who_failed_is_found_when_the_closed_connection_is_noticed_before_the_end_is_told() -> None:
    world = make_scheduler(max_num_seqs=8, num_blocks=64, max_num_batched_tokens=64)
    *others, poisoned = submit(world, [*([2, 3, 4, at + 10] for at in range(7)), [2, POISON]])
    assert run(world, noticed=True) == [8, 4, 2, 1]
    check_refused(poisoned)
    for one in others:
        check_whole(world, one)
    world.check_idle()


def test_a_request_alone_gets_a_second_chance_and_no_third() -> None:
    world = make_scheduler()
    (sent,) = submit(world, [[2, POISON]], n=2)
    assert run(world) == [1, 1]
    check_refused(sent)
    (after,) = submit(world, [[2, 3]])
    assert run(world) == []
    check_whole(world, after)


def test_a_fault_that_does_not_come_again_refuses_nobody() -> None:
    world = make_scheduler(max_num_seqs=8, num_blocks=64)
    sent = submit(world, [[2, 3, 4, at] for at in range(6)], n=2)
    for _ in range(3):
        steps(world, 5)
        fail(world)
    run(world)
    for one in sent:
        check_whole(world, one)
    assert not world.core.state.workers[0].trials
    world.check_idle()


def test_a_signal_from_outside_accuses_nobody() -> None:
    world = make_scheduler()
    (sent,) = submit(world, [[2, 3, 4]])
    for _ in range(5):
        steps(world, 1)
        fail(world, fault=False)
        assert not world.core.state.workers[0].trials
    world.run()
    check_whole(world, sent)


def test_a_worker_that_says_so_and_then_ends_has_failed_once() -> None:
    world = make_scheduler()
    (sent,) = submit(world, [[2, 3, 4]])
    steps(world, 3)
    assert world.worker is not None
    world.turn()
    world.from_worker(WorkerFailed(world.worker.incarnation, "RuntimeError", "CUDA error"))
    fail(world)
    assert world.core.state.workers[0].trials.num_accused == 1
    world.run()
    check_whole(world, sent)


def test_requests_that_come_during_a_trial_wait_for_its_end() -> None:
    world = make_scheduler(max_num_seqs=8, num_blocks=64)
    tried = submit(world, [[2, 3, 4, at] for at in range(2)], max_tokens=20)
    steps(world, 2)
    world.turn()
    fail(world)
    later = world.submit([5, 6], number=7, max_tokens=12, ignore_eos=True)
    world.turn()
    assert len(world.plans[0].new) == 1, "half of two runs alone"
    world.run()
    check_whole(world, later)
    for one in tried:
        check_whole(world, one, 20)


def test_the_end_of_all_that_is_tried_ends_the_trial() -> None:
    world = make_scheduler(max_num_seqs=8, num_blocks=64)
    first, second, third = submit(world, [[2, 3, 4, at] for at in range(3)])
    steps(world, 2)
    world.turn()
    fail(world)
    world.turn()
    world.abort(first)
    world.abort(second)
    world.run()
    check_whole(world, third)
    world.check_idle()


def test_halving_counts_as_progress_and_repeating_does_not() -> None:
    world = make_scheduler(max_num_seqs=8, num_blocks=64, max_num_batched_tokens=64)
    submit(world, [[2, POISON, at + 10] for at in range(4)])
    assert run(world) == [4, 2, 1, 1, 2, 1, 1]
    assert world.core.stats.narrowed == 3
    assert world.core.stats.steps == 0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 3), st.integers(1, 20)), min_size=1, max_size=12),
    st.lists(st.integers(0, 60), max_size=4),
    st.integers(2, 6),
)
def test_whoever_is_not_poisoned_is_whole_whatever_happens(
    requests: list[tuple[bool, int, int]], outside: list[int], rows: int
) -> None:
    world = make_scheduler(max_num_seqs=rows, num_blocks=64)
    sent = [
        world.submit(
            [2, 3] * size + ([POISON] if poisoned else []), n=n, max_tokens=6, ignore_eos=True, seed=size
        )
        for poisoned, n, size in requests
    ]
    for at in range(80):
        world.turn()
        if world.plans and is_poisoned(world, world.plans[0]):
            fail(world)
        elif at in outside:
            fail(world, fault=False)
        else:
            world.step()
    run(world)
    for one, (poisoned, _, _) in zip(sent, requests, strict=True):
        check_refused(one) if poisoned else check_whole(world, one, 6)
    world.check_idle()
