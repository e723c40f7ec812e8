"""The blocks of one KV group: who holds how many references, and which free one is handed out next.

live      references > 0
cached    no reference, but its content has a name: reusable, in order of last use
blank     no reference and no name: handed out first
"""

from collections import OrderedDict

from .prefix_cache import PrefixCache


class BlockPool:
    """Reference counts and the free list, which is the list of least recent use."""

    def __init__(self, num_blocks: int, cache: PrefixCache) -> None:
        self._cache = cache
        self.refs = [0] * num_blocks
        self._blank = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def num_blocks(self) -> int:
        return len(self.refs)

    @property
    def num_free(self) -> int:
        """Blocks that can be taken, cached ones included."""
        return len(self._blank) + len(self._cached)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_live(self) -> int:
        return len(self.refs) - self.num_free

    def take(self, count: int) -> list[int]:
        """`count` blocks with one reference each. Raises IndexError when fewer are free."""
        if count > self.num_free:
            raise IndexError(f"{count} blocks wanted, {self.num_free} free")
        taken = []
        for _ in range(count):
            if self._blank:
                block = self._blank.pop()
            else:
                block, _ = self._cached.popitem(last=False)
                self._cache.forget(block)
            self.refs[block] = 1
            taken.append(block)
        return taken

    def share(self, block: int) -> None:
        """One more reference to a live or cached block."""
        if not self.refs[block]:
            del self._cached[block]
        self.refs[block] += 1

    def release(self, block: int) -> None:
        """One reference less. Release a sequence's last block first: what is released first goes first."""
        self.refs[block] -= 1
        if self.refs[block]:
            return
        if self._cache.name(block) is None:
            self._blank.append(block)
        else:
            self._cached[block] = None

    def free_blocks(self) -> list[int]:
        """Every free block, in no promised order."""
        return [*self._blank, *self._cached]
