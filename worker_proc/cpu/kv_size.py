"""How many blocks each KV group of a model on the CPU gets."""

from collections.abc import Sequence

import torch

from ...protocol.config import WorkerConfig
from ...protocol.errors import OutOfMemoryError
from ...protocol.lifecycle import KVGroup
from ..models.config import LayerGroup, ModelConfig

_GIB = 1 << 30


def size_kv_groups(
    model: ModelConfig, config: WorkerConfig, *, dtype: torch.dtype, block_size: int
) -> tuple[KVGroup, ...]:
    """The KV cache of each group: `config.num_blocks` blocks if given, else what the memory holds.

    Raises OutOfMemoryError that says what to change when not even one block of each fits.
    """
    memory, groups = config.kv_cache_memory_bytes, model.groups
    layer_bytes = 2 * model.kv_size * dtype.itemsize * block_size
    sizes = [layer_bytes * len(group.layers) for group in groups]
    counts = [config.num_blocks] * len(groups)
    if not config.num_blocks:
        counts = divide_memory(memory, sizes, [_enough(group, config, block_size) for group in groups])
    if min(counts) < 1:
        context = sum(sizes) * config.max_model_len / block_size
        raise OutOfMemoryError(
            f"a KV block of {block_size} tokens takes {sum(sizes)} bytes, the KV cache has {memory}: "
            f"raise --kv-cache-memory-bytes (a whole context of {config.max_model_len} tokens takes "
            f"{context / _GIB:.2f} GiB) or lower --block-size"
        )
    return tuple(
        KVGroup(count, block_size, group.window) for count, group in zip(counts, groups, strict=True)
    )


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


def _enough(group: LayerGroup, config: WorkerConfig, block_size: int) -> int | None:
    """Blocks for a window's worth of every row and two steps of chunks, and as many to be found again."""
    if not group.window:
        return None
    row = -(-min(group.window, config.max_model_len) // block_size) + 1
    return 2 * (config.max_num_seqs * row + 2 * -(-config.max_num_batched_tokens // block_size))
