"""How a step's attention is cut into work for a device."""

from typing import NamedTuple

from torch import Tensor


class AttentionSplit(NamedTuple):
    """Work in launch order."""

    items: list[tuple[int, int]]
    """(row, split): parts of the contexts of rows with one query."""
    tiles: list[tuple[int, int]]
    """(row, tile): parts of the queries of rows with several."""
    chunk: int
    """Tokens of context in an item."""


def split_attention(
    query_start: Tensor, seq_lens: Tensor, *, target: int, unit: int, tile_tokens: int
) -> AttentionSplit:
    """Cuts contexts into about `target` items of equal size, a multiple of `unit` tokens, and queries into
    tiles of `tile_tokens`.

    Args:
        query_start: [R + 1] int32. seq_lens: [R] int32.
    """
    num_queries = query_start.diff().tolist()
    units = [-(-n // unit) if q == 1 else 0 for n, q in zip(seq_lens.tolist(), num_queries, strict=True)]
    units_per_item = max(1, -(-sum(units) // target))
    items = [(row, split) for row, n in enumerate(units) for split in range(-(-n // units_per_item))]
    tiles = [
        (row, tile) for row, n in enumerate(num_queries) if n > 1 for tile in range(-(-n // tile_tokens))
    ]
    return AttentionSplit(items, tiles, units_per_item * unit)
