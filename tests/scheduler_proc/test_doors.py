"""What clients may ask, and what they are answered."""

import msgspec
import pytest

from octavo.protocol.codec import FINGERPRINT
from octavo.protocol.errors import InvalidRequestError, from_kind
from octavo.protocol.ids import FinishReason
from octavo.protocol.lifecycle import KVGroup
from octavo.protocol.replies import Accepted, Rejected, Snapshot, Status, Story, Welcome
from octavo.protocol.requests import Alive, ClientHello, Query

from .fake_worker import VOCAB
from .world import World, make_config, make_scheduler


def last(world: World, kind: type) -> object:
    return next(message for message in reversed(world.messages) if isinstance(message, kind))


def rejected(world: World, param: str) -> str:
    """The message of the refusal that names `param`; nothing of the request is left."""
    refusal = last(world, Rejected)
    assert isinstance(refusal, Rejected)
    assert refusal.param == param
    assert isinstance(from_kind(refusal.kind, refusal.message), InvalidRequestError)
    world.check_idle()
    world.run()
    assert not world.history
    return refusal.message


@pytest.mark.parametrize("stop", [VOCAB + 1000, VOCAB])
def test_o04_stop_tokens_outside_the_vocabulary_are_refused(stop: int) -> None:
    world = make_scheduler()
    world.submit([2, 3], stop_token_ids=[stop], min_tokens=1, max_tokens=4)
    assert str(VOCAB - 1) in rejected(world, "stop_token_ids")


def test_o10_a_prompt_as_long_as_the_context() -> None:
    world = make_scheduler(max_model_len=32)
    for length in (32, 33):
        world.submit([3] * length, max_tokens=1)
        message = rejected(world, "prompt")
        assert "32" in message and str(length) in message
    sent = world.submit([3] * 31, max_tokens=1)
    world.run()
    assert sent.answers[0].finish in (FinishReason.LENGTH, FinishReason.STOP) and len(sent.tokens) == 1


def test_o11_a_prompt_far_too_long_is_refused_before_it_is_accepted() -> None:
    world = make_scheduler(max_model_len=32)
    sent = world.submit([3] * 82, stream=True)
    assert sent.accepted is None
    rejected(world, "prompt")


def test_o12_max_tokens_beyond_the_room() -> None:
    world = make_scheduler(max_model_len=32)
    world.submit([3] * 22, max_tokens=11)
    message = rejected(world, "max_tokens")
    assert "10" in message and "11" in message and "22" in message
    sent = world.submit([3] * 22, max_tokens=10, ignore_eos=True)
    world.run()
    assert len(sent.tokens) == 10


def test_without_max_tokens_the_context_is_the_end() -> None:
    world = make_scheduler(max_model_len=32)
    sent = world.submit([3] * 5, max_tokens=None, ignore_eos=True)
    world.run()
    assert len(sent.tokens) == 27 and sent.answers[0].finish is FinishReason.LENGTH


@pytest.mark.parametrize("prompt", [[5, -1], [5, VOCAB], [2**31 - 1], []])
def test_o17_prompts_with_wrong_tokens(prompt: list[int]) -> None:
    world = make_scheduler()
    world.submit(prompt)
    rejected(world, "prompt")


def test_a_submit_of_broken_columns_is_refused() -> None:
    world = make_scheduler()
    good = world.submit([2, 3], number=1)
    world.abort(good)
    for changes, param in (
        ({"prompt": b"abc"}, "prompt"),
        ({"request": -1}, "request"),
        ({"attempt": -1}, "attempt"),
        ({"name": "x" * 257}, "request_id"),
        ({"age_ms": float("nan")}, "age_ms"),
        ({"bad_words": (b"\xff\xff\xff\xff",)}, "bad_words"),
        ({"delivered": (b"", b"")}, "delivered"),
        ({"delivered": (b"\0\0\0\0" * 9,)}, "delivered"),
        ({"ended": (1,)}, "ended"),
    ):
        message = msgspec.structs.replace(good.submit, **changes)
        world.sent[b"client-0", message.request] = good
        world.client(message)
        rejected(world, param)


def test_the_same_submit_twice_is_one_request() -> None:
    world = make_scheduler()
    sent = world.submit([2, 3, 4], ignore_eos=True)
    world.client(sent.submit)
    world.turn()
    world.client(sent.submit)
    world.run()
    world.check(sent)
    assert sum(isinstance(message, Accepted) for message in world.messages) == 3
    assert len(sent.tokens) == 8


def test_the_highest_attempt_wins() -> None:
    world = make_scheduler()
    old = world.submit([2, 3, 4], number=1, ignore_eos=True)
    for _ in range(3):
        world.turn()
        world.step()
    new = world.submit([2, 3, 4], number=1, attempt=1, delivered=[old.tokens[:1]], ignore_eos=True)
    world.client(old.submit)
    world.run()
    world.check(new)
    assert new.ended and len(new.tokens) == 8
    world.check_idle()


def test_o45_numbers_are_each_clients_own() -> None:
    world = make_scheduler()
    one = world.submit([2, 3, 4], number=1, client=b"a", ignore_eos=True)
    two = world.submit([9, 8], number=1, client=b"b", ignore_eos=True)
    world.abort(one)
    world.run()
    world.check(two)
    assert len(two.tokens) == 8
    again = world.submit([9, 8], number=1, client=b"b", ignore_eos=True)
    world.run()
    assert again.tokens == two.tokens


def test_hello_is_welcomed_with_what_a_request_must_obey() -> None:
    world = make_scheduler(start=False)
    world.client(ClientHello(FINGERPRINT, "one"))
    welcome = last(world, Welcome)
    assert isinstance(welcome, Welcome) and not welcome.ready
    assert welcome.limits.max_request_tokens == 64 and "waiting" in welcome.reason
    world.start_worker()
    world.turn()
    status = last(world, Status)
    assert isinstance(status, Status) and status.ready
    world.client(ClientHello("", "foreign"))
    assert isinstance(last(world, Welcome), Welcome)


def test_the_pool_bounds_a_request() -> None:
    world = World(make_config(), (KVGroup(8, 4), KVGroup(8, 2, 9)))
    world.start_worker()
    assert world.core.state.limits().max_request_tokens == 32
    small = World(make_config(), (KVGroup(8, 4), KVGroup(5, 2, 9)))
    small.start_worker()
    assert small.core.state.limits().max_request_tokens == 10, "the window does not fit into the second pool"


def test_a_client_of_another_schema_is_told_and_refused() -> None:
    world = make_scheduler()
    world.client(ClientHello("0123", "old"))
    status = last(world, Status)
    assert isinstance(status, Status) and status.fatal and "0123" in status.reason
    sent = world.submit([2, 3])
    assert sent.rejected is not None and sent.rejected.kind == "ProtocolError"


def test_alive_is_answered_with_the_progress_of_a_start() -> None:
    world = make_scheduler(start=False)
    world.client(Alive())
    status = last(world, Status)
    assert isinstance(status, Status) and not status.ready and status.reason


def test_queries() -> None:
    world = make_scheduler()
    sent = world.submit([2, 3, 4], ignore_eos=True)
    world.turn()
    world.client(Query(1))
    snapshot = last(world, Snapshot)
    assert isinstance(snapshot, Snapshot) and snapshot.token == 1
    assert snapshot.stats.running == 1 and snapshot.stats.blocks_live > 0
    world.run()
    world.client(Query(2, sent.submit.name))
    story = last(world, Story)
    assert isinstance(story, Story)
    assert [entry.what for entry in story.entries] == [
        "queued",
        "starts",
        "step 1",
        "first token",
        "finished",
    ]
    world.client(Query(3, "nobody"))
    unknown = last(world, Story)
    assert isinstance(unknown, Story) and unknown.entries == ()


def test_a_story_names_what_a_request_waited_for() -> None:
    def waits(world: World, name: str) -> set[str]:
        entries = world.core.state.stories.find(name)
        return {entry.detail for entry in entries if entry.what == "waits"}

    rows = make_scheduler(max_num_seqs=1)
    budget = make_scheduler(max_num_batched_tokens=4)
    blocks = make_scheduler(num_blocks=9, groups=1)
    for world in (rows, budget, blocks):
        for seed in (1, 2):
            world.submit(range(2 + seed, 14 + seed), max_tokens=12, ignore_eos=True, seed=seed)
        world.turn()
        world.run()
    assert waits(rows, "req-1") == {"for a row"}
    assert "for budget" in waits(budget, "req-1")
    assert waits(blocks, "req-1") == {"for blocks, by the forecast"}
