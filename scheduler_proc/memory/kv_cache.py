"""The KV memory of one worker: the same questions asked of every KV group, and one answer."""

import math
from dataclasses import dataclass

from ...protocol.lifecycle import KVGroup
from .kv_group import GroupBlocks
from .prefix_cache import DigestChain

_SLICE = 128  # blocks looked up in one go


@dataclass(frozen=True, slots=True)
class Prefix:
    """Blocks that hold the first `length` tokens of a sequence, for each KV group."""

    length: int
    blocks: tuple[list[int], ...]


class KVCache:
    """All KV groups of one worker. A row must be able to grow in each of them to be scheduled."""

    def __init__(self, specs: tuple[KVGroup, ...], num_rows: int, *, caching: bool) -> None:
        self.groups = tuple(GroupBlocks(spec, num_rows) for spec in specs)
        self.caching = caching
        self.stride = math.lcm(*(spec.block_size for spec in specs))  # prefixes are multiples of it
        self._one_table = len(specs) == 1 and not specs[0].window
        self.nothing = Prefix(0, tuple([] for _ in specs))

    def max_request_tokens(self, max_model_len: int) -> int:
        """Tokens of one sequence that the pools can hold at all."""
        return min(group.max_request_tokens(max_model_len) for group in self.groups)

    def find(self, chain: DigestChain, num_known: int) -> Prefix:
        """The longest cached prefix that leaves at least one of `num_known` tokens to compute."""
        if not self.caching:
            return self.nothing
        length = (num_known - 1) // self.stride * self.stride
        agreed = False
        while length and not agreed:
            longest = length
            for group in self.groups:
                length = group.usable(chain, length) // self.stride * self.stride
            agreed = length == longest
        return Prefix(length, tuple(group.prefix(chain, length) for group in self.groups))

    def is_long(self, num_known: int) -> bool:
        """Whether a sequence of so many tokens is looked up slice by slice, so that no step waits for it."""
        return self.caching and self._one_table and num_known > 4 * _SLICE * self.stride

    def find_more(self, found: Prefix, chain: DigestChain, num_known: int) -> tuple[Prefix, bool]:
        """The next slice of a look-up, with references, and whether it found anything: there may be more."""
        group, blocks = self.groups[0], found.blocks[0]
        before = len(blocks)
        for index in range(before, min((num_known - 1) // group.block_size, before + _SLICE)):
            block = group.cache.find(chain.link(group.block_size, index))
            if block is None:
                break
            group.pool.share(block)
            blocks.append(block)
        return Prefix(len(blocks) * group.block_size, (blocks,)), len(blocks) > before

    def head(self, row: int, length: int) -> Prefix:
        """What a row holds of its first `length` tokens (a multiple of the stride), with references."""
        prefix = Prefix(length, tuple(group.head(row, length) for group in self.groups))
        for group, blocks in zip(self.groups, prefix.blocks, strict=True):
            group.share(blocks)
        return prefix

    def give_back(self, prefix: Prefix) -> None:
        """Drop the references that `head` took."""
        for group, blocks in zip(self.groups, prefix.blocks, strict=True):
            group.give_back(blocks)

    def attach(self, row: int, prefix: Prefix) -> None:
        """An empty row starts behind a prefix."""
        for group, blocks in zip(self.groups, prefix.blocks, strict=True):
            group.attach(row, blocks)

    def adopt(self, row: int, prefix: Prefix) -> None:
        """An empty row starts behind a prefix whose references become its own."""
        for group, blocks in zip(self.groups, prefix.blocks, strict=True):
            group.adopt(row, blocks)

    def drain(self) -> None:
        """Give back a slice of the blocks of long rows that ended."""
        for group in self.groups:
            if group.leaving:
                group.drain()

    @property
    def drains(self) -> bool:
        """Whether blocks are to be given back."""
        return any(group.leaving for group in self.groups)

    def room(self, row: int, start: int, wanted: int) -> int:
        """How many of `wanted` tokens from `start` on the row could hold."""
        return min(group.room(row, start, wanted) for group in self.groups)

    def leave_window(self, row: int, written: int) -> None:
        """Give back what no position from `written` on reads."""
        for group in self.groups:
            if group.window:
                group.leave_window(row, written)

    def release(self, row: int) -> None:
        """The row is empty."""
        for group in self.groups:
            group.release(row)
