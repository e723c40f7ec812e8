"""The KV memory of one worker: the same questions asked of every KV group, and one answer."""

import math
from dataclasses import dataclass

from ...protocol.lifecycle import KVGroup
from .kv_group import GroupBlocks
from .prefix_cache import DigestChain


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

    def room(self, row: int, start: int) -> int:
        """How many tokens from `start` on the row could hold."""
        return min(group.room(row, start) for group in self.groups)

    def leave_window(self, row: int, written: int) -> None:
        """Give back what no position from `written` on reads."""
        for group in self.groups:
            if group.window:
                group.leave_window(row, written)

    def release(self, row: int) -> None:
        """The row is empty."""
        for group in self.groups:
            group.release(row)
