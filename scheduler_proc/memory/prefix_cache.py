"""Which blocks hold a known prefix.

A full block is named by a chained digest: of its own tokens and of the name of the block before it, so a name
stands for the whole prefix up to the block's end. The first link is the digest of the cache salt. Digests are
128 bits and keyed with a secret of this process: strong enough to need no comparison of tokens, and out of
reach for a client that would like to guess another's prompt.
"""

from collections.abc import Callable
from hashlib import blake2b

_BYTES = 16


def salt_digest(key: bytes, salt: str) -> bytes:
    """The link before a sequence's first block."""
    return blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=_BYTES, key=key).digest()


class DigestChain:
    """Names of the full blocks of one token sequence, computed no further than asked.

    `tokens(start, end)` gives the int32 bytes of positions [start, end).
    """

    __slots__ = ("_key", "_links", "_root", "_tokens")

    def __init__(self, key: bytes, root: bytes, tokens: Callable[[int, int], bytes]) -> None:
        self._key = key
        self._root = root
        self._tokens = tokens
        self._links: dict[int, list[bytes]] = {}  # by block size

    def link(self, block_size: int, index: int) -> bytes:
        """The name of block `index`; all its tokens must be known."""
        links = self._links.setdefault(block_size, [])
        while len(links) <= index:
            start = len(links) * block_size
            parent = links[-1] if links else self._root
            data = parent + self._tokens(start, start + block_size)
            links.append(blake2b(data, digest_size=_BYTES, key=self._key).digest())
        return links[index]

    def fork(self, length: int, tokens: Callable[[int, int], bytes]) -> "DigestChain":
        """The chain of another sequence that begins with the same `length` tokens."""
        chain = DigestChain(self._key, self._root, tokens)
        chain._links = {size: links[: length // size] for size, links in self._links.items()}
        return chain


class PrefixCache:
    """Names to blocks and back, of one KV group."""

    def __init__(self) -> None:
        self._block_of: dict[bytes, int] = {}
        self._name_of: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._block_of)

    def find(self, name: bytes) -> int | None:
        """The block of that name."""
        return self._block_of.get(name)

    def name(self, block: int) -> bytes | None:
        """The name of a block."""
        return self._name_of.get(block)

    def register(self, block: int, name: bytes) -> None:
        """Give a block its name. When another block has it already, this one stays without."""
        if name not in self._block_of and block not in self._name_of:
            self._block_of[name] = block
            self._name_of[block] = name

    def forget(self, block: int) -> None:
        """The block is about to be overwritten."""
        del self._block_of[self._name_of.pop(block)]
