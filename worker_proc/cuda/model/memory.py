"""How much of a device's memory the KV cache gets."""

from typing import NamedTuple

import torch

from ....protocol.errors import OutOfMemoryError
from ....protocol.lifecycle import KVGroup
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


def size_kv_group(
    config: ModelConfig,
    *,
    dtype: torch.dtype,
    block_size: int,
    num_blocks: int,
    use: MemoryUse,
    utilization: float,
    max_model_len: int,
) -> KVGroup:
    """The KV cache: `num_blocks` if given, else what is left of the part `utilization` of the device.

    Raises OutOfMemoryError that says what to change when it does not fit.
    """
    size = 2 * config.num_layers * config.kv_size * dtype.itemsize * block_size
    left = int(use.total * utilization) - use.used - use.reserved
    blocks = num_blocks or left // size
    if blocks >= 1 and blocks * size <= use.total - use.used - use.reserved:
        return KVGroup(num_blocks=blocks, block_size=block_size)
    context = -(-max_model_len // block_size) * size
    asked = f", and {num_blocks} blocks were asked for" if num_blocks else ""
    raise OutOfMemoryError(
        f"the KV cache does not fit: of {use.total / _GIB:.1f} GiB, weights, buffers and other programs "
        f"use {use.used / _GIB:.1f} and {use.reserved / _GIB:.1f} are set aside for steps; "
        f"gpu_memory_utilization {utilization:g} leaves {left / _GIB:.1f}, a block takes "
        f"{size / _GIB:.3f} and a context of {max_model_len} tokens {context / _GIB:.1f}{asked}: raise "
        f"--gpu-memory-utilization, or lower --max-num-seqs, --max-num-batched-tokens or "
        f"--num-gpu-blocks-override"
    )
