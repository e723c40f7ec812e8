"""Bringing a model up on the CPU."""

import logging
import os

import torch

from ...kernels import cpu as kernels
from ...protocol.config import WorkerConfig
from ..loading import load_model
from ..phases import StartPhases
from .attention import CpuAttention, size_kv_group
from .memory import prepare_heap
from .runner import CpuRunner

_log = logging.getLogger(__name__)

_BLOCK_SIZE = 16
_HEAP_BYTES = (2 << 30) - (4 << 20)  # address space; the C library counts in 32 bits


def load_cpu(config: WorkerConfig, phases: StartPhases) -> CpuRunner:
    """Load the model of a folder. Raises a StartupError that names what is wrong."""
    torch.set_num_threads(config.cpu_threads or len(os.sched_getaffinity(0)))
    torch.set_flush_denormal(True)
    prepare_heap(_HEAP_BYTES)
    model, dtype = load_model(config, phases, device=torch.device("cpu"), ops=kernels)
    phases.enter("kv")
    group = size_kv_group(
        model.config,
        dtype=dtype,
        block_size=config.block_size or _BLOCK_SIZE,
        num_blocks=config.num_blocks,
        memory_bytes=config.kv_cache_memory_bytes,
        max_model_len=config.max_model_len,
    )
    attention = CpuAttention(model.config, group, config.max_model_len, dtype)
    _log.info(
        "%s in %s on %d threads, %d KV blocks of %d tokens",
        model.config.architecture,
        str(dtype).removeprefix("torch."),
        torch.get_num_threads(),
        group.num_blocks,
        group.block_size,
    )
    return CpuRunner(config, model, attention)
