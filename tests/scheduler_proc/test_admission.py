"""Who may start: by memory, by order, by the bounds of the queue."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from octavo.protocol.ids import FinishReason
from octavo.scheduler_proc.batching.admission import peak_blocks
from octavo.scheduler_proc.batching.lengths import OutputLengths

from .world import World, make_scheduler


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=6))
def test_the_peak_is_that_of_a_simulation(sequences: list[tuple[int, int]]) -> None:
    current = np.array([now for now, _ in sequences], np.int64)
    remaining = np.array([more for _, more in sequences], np.int64)
    # At time t a sequence holds what it has grown to, and nothing once it has ended.
    held = [sum(now + t for now, more in sequences if more >= t) for t in range(10)]
    assert peak_blocks(current, remaining) == max(held, default=0)


def test_lengths_to_come_are_a_high_quantile_of_those_that_were_longer() -> None:
    lengths = OutputLengths()
    left = np.array([1000, 1000, 50])
    assert lengths.remaining(np.array([0, 600, 0]), left).tolist() == [512, 600, 50]
    for length in range(1, 101):
        lengths.add(length, whole=True)
    assert lengths.remaining(np.array([0, 50, 100]), np.array([1000] * 3)).tolist() == [91, 46, 100]
    assert lengths.remaining(np.array([0]), np.array([7])).tolist() == [7]


def test_o39_what_can_never_fit_is_refused_and_blocks_nobody() -> None:
    # A pool of 8 blocks of 4; the context would allow twice that.
    world = make_scheduler(num_blocks=8, groups=1, max_model_len=64)
    large = world.submit([2] * 36, max_tokens=1)
    growing = world.submit([2] * 28, max_tokens=12)
    small = world.submit([2] * 5)
    for sent in (large, growing):
        assert sent.rejected is not None and "32" in sent.rejected.message
    world.run()
    world.check(small)
    assert small.ended
    fits = world.submit([2] * 28, max_tokens=4, ignore_eos=True)
    world.run()
    assert len(fits.tokens) == 4


def stream_beside_a_long_prompt(world: World, prompt_len: int) -> list[int]:
    """Tokens that a stream gets in each step while a long prompt is read."""
    stream = world.submit([2, 3], max_tokens=60, ignore_eos=True)
    world.turn()
    world.step()
    long = world.submit([4] * prompt_len, max_tokens=2, ignore_eos=True)
    gained = []
    while not long.tokens:
        before = len(stream.tokens)
        world.turn()
        world.step()
        gained.append(len(stream.tokens) - before)
    world.run()
    world.check(long)
    return gained


def test_o44_a_long_prompt_does_not_freeze_streams() -> None:
    gained = stream_beside_a_long_prompt(make_scheduler(num_blocks=64, max_num_batched_tokens=3), 40)
    assert len(gained) >= 20 and set(gained) == {1}


def test_streams_that_fill_the_budget_do_not_starve_a_prompt() -> None:
    world = make_scheduler(num_blocks=64, max_num_seqs=5, max_num_batched_tokens=4)
    streams = [world.submit([2, n], max_tokens=60, ignore_eos=True, seed=n) for n in range(4)]
    while not all(sent.tokens for sent in streams):
        world.turn()
        world.step()
    prompt = world.submit([4] * 10, max_tokens=2, ignore_eos=True)
    before = [len(sent.tokens) for sent in streams]
    while not prompt.ended:
        world.turn()
        world.step()
    gained = [len(sent.tokens) - had for sent, had in zip(streams, before, strict=True)]
    assert min(gained) >= 7 and max(gained) - min(gained) <= 2, "what is left out goes round"
    world.run()


def test_first_come_first_served() -> None:
    world = make_scheduler(max_num_seqs=1)
    requests = [world.submit([2, n], ignore_eos=True, seed=n, priority=-n) for n in range(4)]
    world.run()
    assert [new.seed for plan in world.history for new in plan.new] == [0, 1, 2, 3]
    assert all(sent.ended for sent in requests)


def test_priority_goes_first_and_ages() -> None:
    world = make_scheduler(max_num_seqs=1, scheduling_policy="priority")
    world.submit([2, 3], ignore_eos=True, seed=0)
    world.turn()
    world.submit([2, 3], priority=1, seed=1)
    world.submit([2, 3], priority=0, seed=2)
    world.now += 100.0
    world.submit([2, 3], priority=0, seed=3)
    world.run()
    assert [new.seed for plan in world.history for new in plan.new] == [0, 2, 1, 3]


def test_the_queue_is_bounded_by_requests() -> None:
    world = make_scheduler(max_num_seqs=2, max_queued_requests=3)
    requests = [world.submit([2, n], seed=n) for n in range(2)]
    world.turn()
    requests += [world.submit([2, n], seed=n) for n in range(5)]
    refused = [sent.rejected for sent in requests if sent.rejected]
    assert len(refused) == 2
    assert refused[0].kind == "QueueFullError" and refused[0].retry_after > 0
    assert [sent.accepted.position for sent in requests if sent.accepted] == [0, 1, 0, 1, 2]
    assert world.core.stats.rejected == {"QueueFullError": 2}
    world.run()
    assert sum(sent.answers[0].finish is not FinishReason.NONE for sent in requests) == 5


def test_the_queue_is_bounded_by_prompt_tokens() -> None:
    world = make_scheduler(start=False, max_queued_tokens=20)
    requests = [world.submit([2] * 9, seed=n) for n in range(3)]
    assert [sent.rejected is None for sent in requests] == [True, True, False]
    alone = make_scheduler(start=False, max_queued_tokens=20)
    assert alone.submit([2] * 30).rejected is None, "one request is never too many"


def test_chats_without_max_tokens_all_run() -> None:
    world = make_scheduler(
        num_blocks=2400,
        block_size=64,
        groups=1,
        max_model_len=131_072,
        max_num_seqs=256,
        max_num_batched_tokens=2048,
        validate=False,
    )
    for number in range(256):
        world.submit([2 + number % 40] * 20, max_tokens=None, ignore_eos=True, seed=number, salt=str(number))
    for _ in range(4):
        world.turn()
        world.step()
    world.turn()
    assert world.core.engine_stats().running == 256
