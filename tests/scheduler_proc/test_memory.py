"""Blocks: pools and prefix caches against a plain model, windows against brute force."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from octavo.protocol.lifecycle import KVGroup
from octavo.scheduler_proc.memory.block_pool import BlockPool
from octavo.scheduler_proc.memory.kv_cache import KVCache
from octavo.scheduler_proc.memory.kv_group import HOLE, GroupBlocks
from octavo.scheduler_proc.memory.prefix_cache import DigestChain, PrefixCache, salt_digest

KEY = b"k" * 32


def chain(tokens: list[int], salt: str = "") -> DigestChain:
    return DigestChain(KEY, salt_digest(KEY, salt), lambda start, end: bytes(tokens[start:end]))


class PoolMachine(RuleBasedStateMachine):
    """A pool of six blocks beside a list of references and a list of names."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = PrefixCache()
        self.pool = BlockPool(6, self.cache)
        self.references: list[int] = []
        self.names: dict[int, bytes] = {}
        self.unused: list[int] = []  # named blocks without references, least recently used first
        self.count = 0

    @rule(count=st.integers(1, 7))
    def take(self, count: int) -> None:
        free = 6 - len(set(self.references))
        if count > free:
            with pytest.raises(IndexError):
                self.pool.take(count)
            return
        taken = self.pool.take(count)
        blank = free - len(self.unused)
        evicted, self.unused = self.unused[: max(0, count - blank)], self.unused[max(0, count - blank) :]
        assert len(set(taken)) == count and not set(taken) & set(self.references)
        assert set(evicted) <= set(taken)
        for block in evicted:
            del self.names[block]
        self.references += taken

    @precondition(lambda self: self.references)
    @rule(data=st.data())
    def name(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.references))
        self.count += 1
        self.cache.register(block, b"%d" % self.count)
        self.names.setdefault(block, b"%d" % self.count)
        self.cache.register(block, next(iter(self.names.values())))

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.names)))
        assert self.cache.find(self.names[block]) == block
        self.pool.share(block)
        self.references.append(block)
        if block in self.unused:
            self.unused.remove(block)

    @precondition(lambda self: self.references)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.references))
        self.references.remove(block)
        self.pool.release(block)
        if block not in self.references and block in self.names:
            self.unused.append(block)

    @invariant()
    def agrees(self) -> None:
        counts = Counter(self.references)
        assert self.pool.refs == [counts[block] for block in range(6)]
        assert self.pool.num_live == len(counts) and self.pool.num_cached == len(self.unused)
        assert len(self.cache) == len(self.names)
        assert {block: self.cache.name(block) for block in self.names} == self.names


PoolMachine.TestCase.settings = settings(max_examples=60, deadline=None)
TestPool = PoolMachine.TestCase


def test_a_suffix_is_evicted_before_its_parents() -> None:
    group = GroupBlocks(KVGroup(4, 2), 2)
    tokens = [1, 2, 3, 4, 5, 6, 7, 8]
    group.grow(0, 8)
    group.name_written(0, chain(tokens), 8)
    group.release(0)
    for left in (6, 4, 2, 0):
        group.pool.take(1)
        assert group.usable(chain(tokens), 8) == left


def test_names_stand_for_the_whole_prefix_and_the_salt() -> None:
    same, other = chain([1, 2, 3, 4]), chain([9, 2, 3, 4])
    assert chain([1, 2, 3, 4, 5]).link(2, 1) == same.link(2, 1)
    assert other.link(2, 1) != same.link(2, 1) != chain([1, 2, 3, 4], "salt").link(2, 1)
    assert chain([1, 2, 3, 4]).link(4, 0) != same.link(2, 1)
    fork = same.fork(3, lambda start, end: bytes([1, 2, 3, 8][start:end]))
    assert fork.link(2, 0) == same.link(2, 0) and fork.link(2, 1) != same.link(2, 1)


@given(
    window=st.integers(2, 12),
    size=st.sampled_from([1, 2, 4]),
    cached=st.lists(st.booleans(), min_size=12, max_size=12),
    length=st.integers(0, 24),
)
def test_a_prefix_is_usable_when_all_that_its_next_token_sees_is_cached(
    window: int, size: int, cached: list[bool], length: int
) -> None:
    tokens = list(range(12 * size))
    for shown in (0, window):
        group = GroupBlocks(KVGroup(12, size, shown), 1)
        for block, there in enumerate(cached):
            if there:
                group.cache.register(block, chain(tokens).link(size, block))

        def whole(prefix: int, group: GroupBlocks = group, shown: int = shown) -> bool:
            visible = range(max(0, prefix - shown + 1) if shown else 0, prefix)
            return all(cached[position // group.block_size] for position in visible)

        bound = min(length, 12 * size)
        best = max(prefix for prefix in range(0, bound + 1, size) if whole(prefix))
        assert group.usable(chain(tokens), bound) == best
        blocks = group.prefix(chain(tokens), best)
        assert len(blocks) == best // size
        assert [block for block in blocks if block != HOLE] == [
            block for at, block in enumerate(blocks) if block == at
        ]


@given(
    window=st.integers(2, 12), size=st.sampled_from([1, 2, 4]), steps=st.lists(st.integers(1, 6), max_size=8)
)
def test_a_window_keeps_exactly_the_blocks_it_reads(window: int, size: int, steps: list[int]) -> None:
    group = GroupBlocks(KVGroup(64, size, window), 1)
    length = 0
    for count in steps:
        length += count
        group.grow(0, length)
        group.leave_window(0, length)
        needed = {position // size for position in range(max(0, length - window + 1), length)}
        held = {at for at, block in enumerate(group.tables[0]) if block != HOLE}
        assert needed <= held <= needed | {length // size, (length - 1) // size}
        assert len(held) == group.pool.num_live <= group.most_live(length)
    group.release(0)
    assert group.pool.num_live == 0


def test_groups_agree_on_a_prefix() -> None:
    cache = KVCache((KVGroup(16, 4), KVGroup(16, 2, 5)), 1, caching=True)
    tokens = list(range(16))
    for group in cache.groups:
        group.grow(0, 16)
        group.name_written(0, chain(tokens), 16)
    cache.leave_window(0, 16)
    cache.release(0)
    assert cache.find(chain(tokens), 17).length == 16
    assert cache.find(chain(tokens), 16).length == 12, "one token must be left to compute"
    # The second group loses the block of positions 10 and 11: only what does not see it is left.
    name = chain(tokens).link(2, 5)
    block = cache.groups[1].cache.find(name)
    assert block is not None
    cache.groups[1].cache.forget(block)
    assert cache.find(chain(tokens), 16).length == 8
    assert cache.find(chain(tokens), 17).length == 16 or cache.find(chain(tokens), 17).length == 8
