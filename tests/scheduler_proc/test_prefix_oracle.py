"""What is found in the prefix cache, against an oracle that knows prompts and an LRU list alone."""

from collections import OrderedDict
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.protocol.columns import pack_i32, unpack_i32
from octavo.scheduler_proc.study.simulate import Simulation
from octavo.scheduler_proc.study.traces import VOCAB, Arrival

from .world import make_scheduler

BLOCK = 16


def shared_prefix_trace(count: int, gap: float, *, seed: int = 0, prompts: int = 5) -> list[Arrival]:
    """Nine tenths of each prompt are one of a few common beginnings."""
    random = Random(seed)
    common = [[random.randrange(10, VOCAB) for _ in range(900)] for _ in range(prompts)]
    return [
        Arrival(
            at * gap,
            pack_i32(random.choice(common) + [random.randrange(10, VOCAB) for _ in range(100)]),
            num_output=8,
            max_tokens=16,
        )
        for at in range(count)
    ]


class LruOracle:
    """The cache as prefixes of prompts in order of last use; requests come one after the other."""

    def __init__(self, num_blocks: int) -> None:
        self._free: OrderedDict[tuple[object, ...], None] = OrderedDict()
        self._blank = num_blocks

    def cached(self, key: object, prompt: list[int], num_output: int) -> int:
        """Prompt tokens found; afterwards what the request wrote is in the cache, and the oldest is not."""
        names = [(key, *prompt[:end]) for end in range(BLOCK, len(prompt) + 1, BLOCK)]
        found = 0
        while found < (len(prompt) - 1) // BLOCK and names[found] in self._free:
            found += 1
        for name in names[:found]:
            del self._free[name]
        # The last token drawn is never computed, so nothing is written for it.
        wanted = -(-(len(prompt) + num_output - 1) // BLOCK) - found
        for _ in range(wanted):
            if self._blank:
                self._blank -= 1
            else:
                self._free.popitem(last=False)
        again = [name for name in names[found:] if name in self._free]
        # Blocks without a name of their own are blank again: the unfinished one, and copies of cached ones.
        full = (len(prompt) + num_output - 1) // BLOCK
        named = names + [(key, *prompt, "output", index) for index in range(len(names), full)]
        self._blank += wanted - (full - found) + len(again)
        for name in reversed(named):
            if name not in self._free:
                self._free[name] = None
        return found * BLOCK


@pytest.mark.parametrize("num_blocks", [2000, 250, 100], ids=["all fits", "some is lost", "most is lost"])
def test_nine_tenths_shared_are_found_as_the_oracle_says(num_blocks: int) -> None:
    trace = shared_prefix_trace(300, 5.0)
    run = Simulation(trace, num_blocks=num_blocks, block_size=BLOCK, max_num_seqs=8, validate=False).run()
    oracle = LruOracle(num_blocks)
    found = [outcome.num_cached for outcome in run.outcomes]
    prompts = [unpack_i32(arrival.prompt).tolist() for arrival in trace]
    assert found == [oracle.cached("", prompt, 8) for prompt in prompts]
    share = sum(found) / sum(map(len, prompts))
    assert share > 0.85 if num_blocks == 2000 else share < 0.85


@pytest.mark.parametrize("num_seqs", [8, 64])
def test_under_load_every_shared_block_is_computed_once(num_seqs: int) -> None:
    trace = shared_prefix_trace(400, 0.01)
    run = Simulation(trace, num_blocks=20_000, block_size=BLOCK, max_num_seqs=num_seqs).run()
    seen: set[bytes] = set()
    expected = 0
    for arrival in trace:
        names = [arrival.prompt[: 4 * end] for end in range(BLOCK, len(arrival.prompt) // 4, BLOCK)]
        expected += BLOCK * sum(name in seen for name in names)
        seen.update(names)
    assert sum(outcome.num_cached for outcome in run.outcomes) == expected
    assert expected > 0.85 * sum(len(arrival.prompt) // 4 for arrival in trace)


SALTS = ["", "a", "b", "a\0", "\0a", "aa", "A", "a ", "\ud800", "ä", "a\u0308", "0" * 16, "user:a", "a" * 300]


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.lists(st.sampled_from(SALTS), min_size=2, max_size=25))
def test_poisoned_salts_never_share(random: Random, salts: list[str]) -> None:
    world = make_scheduler(groups=1, block_size=4, num_blocks=600, max_num_batched_tokens=40)
    prompts = [[random.randrange(5, 40) for _ in range(20)] for _ in range(2)]
    known: dict[tuple[str, int], int] = {}
    for seed, salt in enumerate(salts):
        which = random.randrange(2)
        sent = world.submit(prompts[which], salt=salt, seed=seed, max_tokens=3)
        world.run()
        start = sent.answers[0].start
        assert start is not None and start.num_cached == known.get((salt, which), 0)
        known[salt, which] = 16
        world.check(sent)


def test_equal_prompts_of_different_salts_at_once_share_nothing_and_say_the_same() -> None:
    world = make_scheduler(groups=2, num_blocks=200, max_num_seqs=14, max_num_batched_tokens=64)
    sent = [world.submit([7] * 24, salt=salt, max_tokens=6) for salt in SALTS]
    world.run()
    assert all(one.answers[0].start is not None and one.answers[0].start.num_cached == 0 for one in sent)
    assert len({tuple(one.tokens) for one in sent}) == 1
    for one in sent:
        world.check(one)


def test_a_long_prompt_is_looked_up_in_slices_and_given_back_in_slices() -> None:
    world = make_scheduler(
        groups=1,
        block_size=1,
        num_blocks=6000,
        max_num_batched_tokens=5000,
        max_model_len=3000,
        validate=True,
    )
    prompt = [5 + at % 30 for at in range(2400)]
    texts = []
    for found in (0, 2399):
        sent = world.submit(prompt, max_tokens=4, ignore_eos=True, temperature=0.0)
        turns = 0
        while not sent.ended:
            world.turn()
            turns += 1
            if world.plans:
                world.step()
        start = sent.answers[0].start
        assert start is not None and start.num_cached == found
        assert turns > 10 if found else turns < 10
        assert world.core.engine_stats().blocks_live > 1000, "not all at once"
        while world.core.next_turn() == 0.0:
            world.turn()
        world.check_idle()
        world.check(sent)
        texts.append(sent.tokens)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("how", ["abort", "worker"])
def test_what_a_search_has_found_so_far_is_let_go(how: str) -> None:
    world = make_scheduler(
        groups=1, block_size=1, num_blocks=6000, max_num_batched_tokens=5000, max_model_len=3000
    )
    prompt = [5 + at % 30 for at in range(2400)]
    world.submit(prompt, max_tokens=2, ignore_eos=True)
    world.run()
    sent = world.submit(prompt, max_tokens=2, ignore_eos=True)
    world.turn()
    world.turn()
    assert world.core.state.searching
    if how == "abort":
        world.abort(sent)
    else:
        world.start_worker()
    while world.core.next_turn() == 0.0 or world.plans:
        world.turn()
        if world.plans:
            world.step()
    world.check_idle()
    world.check(sent)
