"""How many blocks each KV group of a model on the CPU gets."""

import torch

from ...protocol.config import WorkerConfig
from ...protocol.errors import OutOfMemoryError
from ...protocol.lifecycle import KVGroup
from ..kv_groups import divide_memory, enough_blocks
from ..models.config import ModelConfig

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
        counts = divide_memory(memory, sizes, [enough_blocks(group, config, block_size) for group in groups])
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
