"""Lives of workers: starts, restarts, faults, results that do not fit."""

import pytest
from msgspec.structs import replace

from octavo.protocol.codec import FINGERPRINT
from octavo.protocol.columns import pack_i32
from octavo.protocol.ids import FinishReason
from octavo.protocol.lifecycle import WorkerFailed, WorkerHello, WorkerProgress, WorkerReady
from octavo.protocol.replies import LogprobColumns

from .fake_worker import VOCAB
from .world import World, make_config, make_groups, make_scheduler


def steps(world: World, count: int) -> None:
    for _ in range(count):
        world.turn()
        world.step()


def test_requests_wait_for_the_worker() -> None:
    world = make_scheduler(start=False)
    sent = world.submit([2, 3, 4])
    world.turn()
    assert sent.accepted is not None and not world.history
    world.start_worker()
    world.run()
    world.check(sent)
    assert sent.ended


def test_a_request_that_turns_out_too_large_ends_with_an_error() -> None:
    world = World(make_config(), make_groups(num_blocks=8, groups=1))
    large = world.submit([2] * 30, max_tokens=30)
    open_end = world.submit([2] * 20, max_tokens=None, ignore_eos=True)
    small = world.submit([2] * 5)
    world.start_worker()
    world.run()
    fault = large.answers[0].fault
    assert fault is not None and fault.kind == "InvalidRequestError" and "32" in fault.message
    assert len(open_end.tokens) == 12
    world.check(small)


def test_a_new_life_takes_requests_up_where_they_were() -> None:
    world = make_scheduler(max_num_seqs=2)
    requests = [world.submit([2, 3, 4, n], n=2, max_tokens=12, ignore_eos=True, seed=n) for n in range(3)]
    steps(world, 6)
    assert world.core.engine_stats().blocks_live
    world.start_worker()
    assert world.core.engine_stats().blocks_live == world.core.engine_stats().blocks_cached == 0
    world.turn()
    first = world.plans[0]
    assert first.step == 1 and first.new[0].seed == 0, "the oldest request goes first"
    world.run()
    for sent in requests:
        world.check(sent)
        assert [len(answer.tokens) for answer in sent.answers] == [12, 12]
    assert world.core.stats.worker_resets == 1


def test_results_of_an_earlier_life_are_dropped() -> None:
    world = make_scheduler()
    sent = world.submit([2, 3, 4], ignore_eos=True)
    world.turn()
    assert world.worker is not None
    stale = world.worker.execute(world.plans.popleft())
    world.start_worker()
    world.turn()
    world.from_worker(stale)
    world.run()
    world.check(sent)
    assert len(sent.tokens) == 8 and world.stopped == 0


def test_a_failed_worker_says_why() -> None:
    world = make_scheduler(start=False)
    world.from_worker(WorkerHello(FINGERPRINT, 7, 0, 0, 1))
    world.from_worker(WorkerProgress(7, "weights", 0.4))
    assert world.core.state.readiness() == (False, "worker 0: weights 40%")
    world.from_worker(WorkerFailed(7, "ModelError", "no weights"))
    assert "ModelError: no weights" in world.core.state.readiness()[1]
    world.from_worker(WorkerProgress(7, "weights", 0.5))
    assert "ModelError" in world.core.state.readiness()[1]
    world.from_worker(WorkerHello("other schema", 8, 0, 0, 1))
    assert "other schema" in world.core.state.readiness()[1]


@pytest.mark.parametrize(
    ("param", "kind"), [("", "RequestFailedError"), ("structured_outputs", "InvalidRequestError")]
)
def test_one_row_that_fails_ends_its_request_alone(param: str, kind: str) -> None:
    world = make_scheduler()
    failing = world.submit([2, 3, 4], n=2, max_tokens=12, ignore_eos=True)
    other = world.submit([5, 6], max_tokens=12, ignore_eos=True)
    steps(world, 4)
    assert world.worker is not None
    row = next(row for row, held in world.worker.rows.items() if held.new.prompt_len == 3)
    world.worker.fail_rows[row] = "NaN in its logits"
    world.worker.fail_param = param
    world.run()
    for answer in failing.answers:
        assert answer.finish is FinishReason.ERROR and answer.fault is not None
        assert answer.fault.kind == kind and "NaN" in answer.fault.message
    world.check(failing)
    world.check(other)
    assert len(other.tokens) == 12
    world.check_idle()


def test_a_row_without_its_token_fails() -> None:
    world = make_scheduler()
    requests = [world.submit([2, 3, n], max_tokens=12, ignore_eos=True, seed=n) for n in range(2)]
    steps(world, 2)
    world.turn()
    assert world.worker is not None
    result = world.worker.execute(world.plans.popleft())
    world.from_worker(replace(result, row=result.row[4:], token=result.token[4:]))
    world.run()
    finishes = sorted(sent.answers[0].finish for sent in requests)
    assert finishes == [FinishReason.LENGTH, FinishReason.ERROR]


def test_a_result_that_does_not_fit_stops_the_worker_and_loses_nothing() -> None:
    for change in (
        {"step": 99},
        {"token": b"\0"},
        {"token": pack_i32([VOCAB])},
        {"row": pack_i32([3])},
        {"logprobs": LogprobColumns(b"\0", b"", b"", b"")},
        {"logprobs": LogprobColumns(pack_i32([2]), b"", b"", pack_i32([1]))},
    ):
        world = make_scheduler()
        sent = world.submit([2, 3, 4], ignore_eos=True)
        steps(world, 2)
        world.turn()
        assert world.worker is not None
        world.from_worker(replace(world.worker.execute(world.plans.popleft()), **change))
        assert world.stopped == 1 and not world.core.state.workers[0].ready
        world.start_worker()
        world.run()
        world.check(sent)
        assert len(sent.tokens) == 8


def test_messages_of_workers_that_do_not_exist_are_dropped() -> None:
    world = make_scheduler()
    for index, rank in ((1, 0), (0, 1), (-1, 0)):
        world.from_worker(WorkerHello(FINGERPRINT, 1, 1, 0, 1), rank, index)
    sent = world.submit([2, 3, 4])
    world.run()
    world.check(sent)


def test_every_rank_gets_the_plan_and_the_first_one_answers() -> None:
    world = make_scheduler(group_size=2, start=False)
    sent = world.submit([2, 3, 4], ignore_eos=True)
    groups = make_groups()
    for rank in (0, 1):
        assert not world.core.state.workers[0].ready
        world.from_worker(WorkerHello(FINGERPRINT, 70 + rank, 0, rank, 1), rank)
        world.from_worker(WorkerReady(70 + rank, groups, 4, 16, VOCAB, ()), rank)
    world.start_worker()
    world.run()
    world.check(sent)
    assert len(sent.tokens) == 8


def test_two_workers_share_the_queue() -> None:
    world = make_scheduler(num_groups=2, max_num_seqs=3)
    world.start_other_worker()
    requests = [world.submit([2, 3, 4, n], n=2, ignore_eos=True, seed=n) for n in range(6)]
    world.turn()
    assert world.plans and world.other_plans
    for _ in range(4):
        world.step()
        world.turn()
    world.start_other_worker()
    world.run()
    for sent in requests:
        world.check(sent)
        assert sent.ended
    world.check_idle()
