"""How much of a device's memory the KV cache gets."""

from typing import NamedTuple

import torch

from ....protocol.config import WorkerConfig
from ....protocol.errors import OutOfMemoryError
from ....protocol.lifecycle import KVGroup
from ...kv_groups import divide_memory, enough_blocks
from ...models.config import ModelConfig

_GIB = 1 << 30
# On an H200 the first graph of a pool takes about 110 MB, each further one 0.9 to 1.2.
_FIRST_GRAPH = 128 << 20
_GRAPH = 3 << 19


class MemoryUse(NamedTuple):
    """Bytes of a device."""

    total: int
    used: int  # by everything that is there but the KV cache, other processes included
    reserved: int  # for what comes later: graphs, and what a step allocates while it runs


class DeviceMemory:
    """Measures what the largest step needs, from now on."""

    def __init__(self) -> None:
        torch.cuda.reset_peak_memory_stats()

    def measure(self, *, num_graphs: int) -> MemoryUse:
        """What is used now, and must be set aside for steps and for so many graphs."""
        torch.cuda.synchronize()
        transient = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        graphs = _FIRST_GRAPH + num_graphs * _GRAPH if num_graphs else 0
        # Graphs have a pool of their own, so that what a step allocates can be there twice.
        return MemoryUse(total, total - free, 2 * transient + graphs)


def size_kv_groups(
    model: ModelConfig, config: WorkerConfig, *, dtype: torch.dtype, block_size: int, use: MemoryUse
) -> tuple[KVGroup, ...]:
    """The KV cache: `config.num_blocks` a group if given, else what is left of `gpu_memory_utilization`.

    Raises OutOfMemoryError that says what to change when it does not fit.
    """
    groups = model.groups
    layer_bytes = 2 * model.kv_size * dtype.itemsize * block_size
    sizes = [layer_bytes * len(group.layers) for group in groups]
    left = int(use.total * config.gpu_memory_utilization) - use.used - use.reserved
    counts = [config.num_blocks] * len(groups)
    if not config.num_blocks:
        counts = divide_memory(
            max(left, 0), sizes, [enough_blocks(group, config, block_size) for group in groups]
        )
    needed = sum(count * size for count, size in zip(counts, sizes, strict=True))
    if min(counts) >= 1 and needed <= use.total - use.used - use.reserved:
        return tuple(
            KVGroup(count, block_size, group.window) for count, group in zip(counts, groups, strict=True)
        )
    context = -(-config.max_model_len // block_size) * sum(sizes)
    asked = f", and {config.num_blocks} blocks were asked for" if config.num_blocks else ""
    raise OutOfMemoryError(
        f"the KV cache does not fit: of {use.total / _GIB:.1f} GiB, weights, buffers and other programs "
        f"use {use.used / _GIB:.1f} and {use.reserved / _GIB:.1f} are set aside for steps; "
        f"gpu_memory_utilization {config.gpu_memory_utilization:g} leaves {left / _GIB:.1f}, a block "
        f"takes {sum(sizes) / _GIB:.3f} and a context of {config.max_model_len} tokens "
        f"{context / _GIB:.1f}{asked}: raise --gpu-memory-utilization, or lower --max-num-seqs, "
        f"--max-num-batched-tokens or --num-gpu-blocks-override"
    )
