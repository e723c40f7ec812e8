"""Aborts, stop strings, deadlines, dead and slow clients: the end is at once and leaves nothing behind."""

import gc
import weakref

import pytest

from octavo.protocol.ids import FinishReason
from octavo.protocol.requests import Alive
from octavo.scheduler_proc.clients.registry import SILENCE
from octavo.scheduler_proc.core.events import ClientSlow

from .world import CLIENT, Sent, World, make_scheduler


def run_steps(world: World, count: int) -> None:
    for _ in range(count):
        world.turn()
        world.step()


def test_o37_a_vanished_client_frees_its_rows_and_is_never_computed_in_the_queue() -> None:
    world = make_scheduler(max_num_seqs=1)
    world.submit([2, 3], max_tokens=50, ignore_eos=True, client=b"a")
    world.submit([4, 5], max_tokens=50, ignore_eos=True, client=b"b")
    run_steps(world, 3)
    world.client_gone(b"b")
    world.client_gone(b"a")
    world.check_idle()
    generated = world.core.stats.generated_tokens
    world.run()
    assert world.core.stats.generated_tokens == generated
    assert world.core.stats.prompt_tokens == 2, "the queued prompt was not counted"
    assert len({new.seed for plan in world.history for new in plan.new}) == 1


def test_o38_no_block_is_lost_by_aborts() -> None:
    world = make_scheduler(num_blocks=40)
    requests: list[Sent] = []
    for number in range(200):
        requests.append(world.submit([2 + number % 40, 3, 4], ignore_eos=True, max_tokens=6, seed=number))
        if number % 2:
            world.abort(requests[number - number % 7])
        world.turn()
        world.step()
    world.run()
    world.check_idle()
    for sent in requests:
        world.check(sent)
    assert world.core.engine_stats().blocks_cached > 0
    whole = world.submit(range(2, 32), max_tokens=34, ignore_eos=True)
    world.run()
    assert len(whole.tokens) == 34


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_an_abort_discards_what_is_in_flight(steps: int) -> None:
    world = make_scheduler()
    sent = world.submit([2, 3, 4], max_tokens=30, ignore_eos=True)
    run_steps(world, steps)
    world.turn()
    in_flight = len(world.plans)
    world.abort(sent)
    world.check_idle()
    world.run()
    assert world.core.stats.discarded_tokens == in_flight == 2
    assert len(sent.tokens) == steps


def test_a_stop_string_ends_one_choice() -> None:
    world = make_scheduler()
    sent = world.submit([2, 3, 4], n=2, max_tokens=12, ignore_eos=True)
    run_steps(world, 8)
    have = len(sent.answers[0].tokens)
    world.finish(sent, 0, have - 2)
    world.finish(sent, 0, 1)
    generated = world.core.stats.generated_tokens
    world.run()
    world.check(sent)
    assert len(sent.answers[1].tokens) == 12
    stats = world.core.stats
    assert stats.generated_tokens > generated
    assert stats.generated_tokens == (have - 2) + 12, "what was cut off does not count"
    world.check_idle()


def test_a_stop_string_before_the_others_have_started() -> None:
    world = make_scheduler(max_num_seqs=1)
    sent = world.submit([2, 3, 4], n=3, max_tokens=6, ignore_eos=True)
    run_steps(world, 2)
    world.finish(sent, 0, 1)
    world.run()
    world.check(sent)
    assert [len(answer.tokens) for answer in sent.answers] == [1, 6, 6]


def test_finish_and_abort_of_the_unknown_are_ignored() -> None:
    world = make_scheduler()
    sent = world.submit([2, 3, 4])
    world.run()
    before = list(sent.tokens)
    world.abort(sent)
    world.finish(sent, 0, len(before))
    assert sent.tokens == before


def expired(sent: Sent) -> bool:
    answer = sent.answers[0]
    assert answer.fault is None or answer.fault.kind == "RequestTimeoutError"
    return answer.finish is FinishReason.TIMEOUT and answer.fault is not None


def test_a_deadline_in_the_queue() -> None:
    world = make_scheduler(max_num_seqs=1)
    first = world.submit([2, 3], max_tokens=60, ignore_eos=True)
    late = world.submit([4, 5], timeout=1.0)
    world.turn()
    assert world.core.next_turn() == world.core.state.next_deadline()
    world.turn(2.0)
    assert expired(late) and late.tokens == []
    world.run()
    assert len(first.tokens) == 60
    assert len({new.seed for plan in world.history for new in plan.new}) == 1, "it was never computed"


def test_a_deadline_before_the_first_step_and_one_between_steps() -> None:
    world = make_scheduler()
    never = world.submit([2, 3], timeout=1.0, age_ms=1500.0)
    halfway = world.submit([2, 3], timeout=1.0, max_tokens=60, ignore_eos=True)
    run_steps(world, 3)
    world.turn(2.0)
    assert expired(never) and never.tokens == []
    assert expired(halfway) and 0 < len(halfway.tokens) < 60
    world.check_idle()
    world.run()


def test_the_servers_timeout_bounds_that_of_a_request() -> None:
    world = make_scheduler(request_timeout=1.0)
    requests = [world.submit([2], timeout=timeout, max_tokens=60) for timeout in (None, 50.0, 0.5)]
    assert [round(sent.deadline - 100.0, 3) for sent in _requests(world)] == [1.0, 1.0, 0.5]
    world.turn(0.7)
    assert [expired(sent) for sent in requests] == [False, False, True]
    world.turn(0.7)
    assert all(expired(sent) for sent in requests)


def _requests(world: World) -> list:  # type: ignore[type-arg]
    return [request for client in world.core.state.clients.all() for request in client.requests.values()]


def test_a_silent_client_loses_its_requests_and_is_told_so_should_it_live() -> None:
    world = make_scheduler(start=False)
    silent = world.submit([2, 3], client=b"a")
    alive = world.submit([2, 3], client=b"b")
    world.turn(SILENCE - 1)
    world.client(Alive(), b"b")
    assert world.core.next_turn() == 100.0 + SILENCE
    world.turn(2)
    world.start_worker()
    world.run()
    fault = silent.answers[0].fault
    assert fault is not None and fault.kind == "SlowClientError"
    assert alive.ended and alive.answers[0].fault is None
    assert world.core.next_turn() == float("inf")


def test_a_slow_client_loses_its_requests_alone() -> None:
    world = make_scheduler()
    slow = world.submit([2, 3], max_tokens=50, ignore_eos=True)
    other = world.submit([2, 3], max_tokens=50, ignore_eos=True, client=b"other")
    run_steps(world, 4)
    world.handle(ClientSlow(world.now, CLIENT))
    world.run()
    fault = slow.answers[0].fault
    assert fault is not None and fault.kind == "SlowClientError"
    assert slow.answers[0].finish is FinishReason.ERROR
    world.check(other)
    assert len(other.tokens) == 50
    world.check_idle()


def test_an_ended_request_is_freed_without_a_garbage_collection() -> None:
    world = make_scheduler(max_num_seqs=2, request_timeout=1000.0)
    for number in range(12):
        sent = world.submit([2, 3, number + 2], n=2, seed=number)
        if number % 3 == 0:
            world.abort(sent)
    watched = [weakref.ref(choice) for request in _requests(world) for choice in request.choices]
    assert len(watched) == 16
    gc.disable()
    try:
        world.run()
        assert not any(reference() for reference in watched)
    finally:
        gc.enable()
