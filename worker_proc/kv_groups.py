"""How the memory of a KV cache is divided among its groups, on whichever device."""

from collections.abc import Sequence

from ..protocol.config import WorkerConfig
from .models.config import LayerGroup


def divide_memory(memory: int, sizes: Sequence[int], enough: Sequence[int | None]) -> list[int]:
    """As many blocks for each group, but no group gets more than is enough for it while others can use it.

    Args:
        memory: bytes in all.
        sizes: bytes of a block of each group.
        enough: blocks beyond which a group has no use for more; None where there is no such number.
    """
    counts = [0] * len(sizes)
    growing = list(range(len(sizes)))
    while True:
        equal = memory // sum(sizes[group] for group in growing)
        full = {group: limit for group in growing if (limit := enough[group]) is not None and limit < equal}
        if not full or len(full) == len(growing):
            for group in growing:
                counts[group] = equal
            return counts
        for group, limit in full.items():
            counts[group] = limit
            memory -= limit * sizes[group]
            growing.remove(group)


def enough_blocks(group: LayerGroup, config: WorkerConfig, block_size: int) -> int | None:
    """Blocks for a window's worth of every row and two steps of chunks, and as many to be found again."""
    if not group.window:
        return None
    row = -(-min(group.window, config.max_model_len) // block_size) + 1
    return 2 * (config.max_num_seqs * row + 2 * -(-config.max_num_batched_tokens // block_size))
