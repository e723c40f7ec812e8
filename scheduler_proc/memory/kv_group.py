"""The block lists of all rows for one KV group: layers that share window and KV shape.

    table     HOLE HOLE  b  b  b  b         one entry a block, from position 0 on
                         ^first     ^held
              out of the window     the next position that needs a block is held * block_size

With a sliding window, position q attends to positions from q - window + 1 on; blocks wholly before that of
the next position to be computed are given back and leave a hole.
"""

import numpy as np
from numpy.typing import NDArray

from ...protocol.lifecycle import KVGroup
from .block_pool import BlockPool
from .prefix_cache import DigestChain, PrefixCache

HOLE = -1
_AT_ONCE = 1000  # blocks given back in one go; more leave slice by slice, so that no step waits for it


class GroupBlocks:
    """Pool, prefix cache and tables of one KV group."""

    def __init__(self, spec: KVGroup, num_rows: int) -> None:
        self.block_size = spec.block_size
        self.window = spec.window
        self.cache = PrefixCache()
        self.pool = BlockPool(spec.num_blocks, self.cache)
        self.tables: list[list[int]] = [[] for _ in range(num_rows)]
        self.held: NDArray[np.int64] = np.zeros(num_rows, np.int64)
        self.first: NDArray[np.int64] = np.zeros(num_rows, np.int64)
        self.named: NDArray[np.int64] = np.zeros(num_rows, np.int64)  # blocks offered to the prefix cache
        self.leaving: list[int] = []  # of rows that are empty, still referenced

    def blocks_for(self, length: int) -> int:
        """Blocks that `length` tokens fill or begin."""
        return -(-length // self.block_size)

    def _lowest(self, length: int) -> int:
        """The first block that the token at position `length` attends to."""
        return max(0, length - self.window + 1) // self.block_size if self.window else 0

    def max_request_tokens(self, max_model_len: int) -> int:
        """Tokens of one sequence that the pool can hold at all."""
        if self.window and self.pool.num_blocks > self.blocks_for(self.window):
            return max_model_len
        return self.pool.num_blocks * self.block_size

    def most_live(self, length: int) -> int:
        """Most blocks a row needs at once while it grows to `length` tokens one by one."""
        blocks = self.blocks_for(length)
        return min(blocks, self.blocks_for(self.window) + 1) if self.window else blocks

    def usable(self, chain: DigestChain, length: int) -> int:
        """Longest prefix of at most `length` tokens, in whole blocks, that a new row could start behind."""
        top = length // self.block_size
        if not self.window:
            for index in range(top):
                if self.cache.find(chain.link(self.block_size, index)) is None:
                    return index * self.block_size
            return top * self.block_size
        end = top
        while end:
            lowest = self._lowest(end * self.block_size)
            index = end - 1
            while index >= lowest and self.cache.find(chain.link(self.block_size, index)) is not None:
                index -= 1
            if index < lowest:
                break
            end = index  # every shorter prefix that reaches beyond this block needs it too
        return end * self.block_size

    def prefix(self, chain: DigestChain, length: int) -> list[int]:
        """The blocks of a usable prefix, holes included. They are not referenced yet."""
        lowest = self._lowest(length)
        blocks = [HOLE] * lowest
        for index in range(lowest, length // self.block_size):
            block = self.cache.find(chain.link(self.block_size, index))
            if block is None:
                raise KeyError(f"block {index} of a prefix of {length} tokens is not cached")
            blocks.append(block)
        return blocks

    def head(self, row: int, length: int) -> list[int]:
        """The blocks of a row's first `length` tokens that a row starting behind them would read."""
        count, lowest = length // self.block_size, self._lowest(length)
        return [HOLE] * lowest + self.tables[row][lowest:count]

    def share(self, blocks: list[int]) -> None:
        """One more reference to each block of a list."""
        for block in blocks:
            if block != HOLE:
                self.pool.share(block)

    def give_back(self, blocks: list[int]) -> None:
        """One reference less to each block of a list, the last first."""
        for block in reversed(blocks):
            if block != HOLE:
                self.pool.release(block)

    def attach(self, row: int, blocks: list[int]) -> None:
        """An empty row starts with these blocks, which become shared."""
        self.share(blocks)
        self.adopt(row, blocks)

    def adopt(self, row: int, blocks: list[int]) -> None:
        """An empty row starts with these blocks, and their references become its own."""
        self.tables[row] = list(blocks)
        self.held[row] = self.named[row] = len(blocks)
        self.first[row] = next((at for at, block in enumerate(blocks) if block != HOLE), len(blocks))

    def room(self, row: int, start: int, wanted: int) -> int:
        """How many of `wanted` tokens from `start` on fit into what the row holds and what is free."""
        held = int(self.held[row])
        free = self.num_free(self.blocks_for(start + wanted) - held)
        return min(wanted, (held + free) * self.block_size - start)

    def num_free(self, wanted: int) -> int:
        """Blocks that can be taken now; when fewer than `wanted` are free, what leaves is not waited for."""
        if self.leaving and self.pool.num_free < wanted:
            self.drain(len(self.leaving))
        return self.pool.num_free

    def drain(self, most: int = _AT_ONCE) -> None:
        """Give back some of the blocks that leave."""
        part = self.leaving[-most:]
        del self.leaving[-most:]
        self.give_back(part)

    def grow(self, row: int, length: int) -> list[int]:
        """Let the row hold `length` tokens; returns the blocks added."""
        missing = self.blocks_for(length) - int(self.held[row])
        if missing <= 0:
            return []
        added = self.pool.take(missing)
        self.tables[row] += added
        self.held[row] += missing
        return added

    def grow_each(self, rows: list[int]) -> list[int]:
        """One more block for each of these rows; returns them in the same order."""
        added = self.pool.take(len(rows))
        for row, block in zip(rows, added, strict=True):
            self.tables[row].append(block)
        self.held[rows] += 1
        return added

    def name_written(self, row: int, chain: DigestChain, written: int) -> None:
        """Blocks of the row that are full now may be found by others."""
        full = written // self.block_size
        table = self.tables[row]
        for index in range(int(self.named[row]), full):
            if table[index] != HOLE:
                self.cache.register(table[index], chain.link(self.block_size, index))
        self.named[row] = full

    def leave_window(self, row: int, written: int) -> None:
        """Give back the blocks that no position from `written` on attends to."""
        lowest = min(self._lowest(written), int(self.held[row]))
        table = self.tables[row]
        first = int(self.first[row])
        self.give_back(table[first:lowest])
        table[first:lowest] = [HOLE] * (lowest - first)
        self.first[row] = max(first, lowest)

    def release(self, row: int) -> None:
        """The row is empty."""
        self.leaving += self.tables[row]
        if len(self.tables[row]) <= _AT_ONCE:
            self.drain(len(self.tables[row]))
        self.tables[row] = []
        self.held[row] = self.first[row] = self.named[row] = 0
