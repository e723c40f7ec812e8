"""Bringing a model up on the CPU."""

import logging
import os

import torch
from msgspec.structs import replace

from ...kernels import cpu as kernels
from ...protocol.config import WorkerConfig
from ..loading import load_model
from ..parallel import Ranks
from ..parallel.group import join_group
from ..phases import StartPhases
from .attention import CpuAttention
from .kv_size import size_kv_groups
from .memory import prepare_heap
from .ops import CpuOps
from .runner import CpuRunner

_log = logging.getLogger(__name__)

_BLOCK_SIZE = 16
_SECOND_FORM_BYTES = 512 << 20  # of weights also kept as a single row reads them fastest
_HEAP_BYTES = (2 << 30) - (4 << 20)  # address space; the C library counts in 32 bits


def load_cpu(config: WorkerConfig, phases: StartPhases, ranks: Ranks | None = None) -> CpuRunner:
    """Load the model of a folder, or this rank's share of it. Raises a StartupError that names what is wrong.

    Without `ranks` the other processes of this worker's group are met.
    """
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(config.cpu_threads or max(1, cores // config.group_size))
    torch.set_flush_denormal(True)
    prepare_heap(_HEAP_BYTES)
    phases.enter("compile")
    kernels.native_ops()
    ops = CpuOps(_SECOND_FORM_BYTES)
    if config.group_size > 1:
        phases.enter("ranks")
    ranks = ranks or join_group(config, "gloo")
    model, dtype = load_model(config, phases, device=torch.device("cpu"), ops=ops, ranks=ranks)
    phases.enter("kv")
    groups = size_kv_groups(model.config, config, dtype=dtype, block_size=config.block_size or _BLOCK_SIZE)
    counts = ranks.least([group.num_blocks for group in groups])
    groups = tuple(replace(group, num_blocks=count) for group, count in zip(groups, counts, strict=True))
    attention = CpuAttention(model.config, groups, config.max_model_len, dtype)
    _log.info(
        "%s in %s on %d threads, KV blocks of %d tokens: %s",
        model.config.architecture,
        str(dtype).removeprefix("torch."),
        torch.get_num_threads(),
        groups[0].block_size,
        ", ".join(
            f"{group.num_blocks}" + (f" for windows of {group.window}" if group.window else "")
            for group in groups
        ),
    )
    return CpuRunner(config, model, attention, ranks)
