"""Bringing a model up on the CPU."""

import logging
import os
from dataclasses import replace
from pathlib import Path

import torch

from ...kernels import cpu as kernels
from ...protocol.config import WorkerConfig
from ...protocol.errors import ModelError, UsageError
from ..models import Decoder, ModelConfig, read_config
from ..models.parameters import Parameters
from ..phases import StartPhases
from ..weights import checkpoint_dtype, fill_dummy, load_weights, read_header, weight_files
from .attention import CpuAttention, size_kv_group
from .memory import keep_freed_memory
from .runner import CpuRunner

_log = logging.getLogger(__name__)

_BLOCK_SIZE = 16
_HEAD = "lm_head.weight"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_cpu(config: WorkerConfig, phases: StartPhases) -> CpuRunner:
    """Load the model of a folder. Raises a StartupError that names what is wrong."""
    torch.set_num_threads(config.cpu_threads or len(os.sched_getaffinity(0)))
    torch.set_flush_denormal(True)
    keep_freed_memory()
    model_config = read_config(Path(config.model_path))
    if model_config.vocab_size != config.vocab_size:
        raise ModelError(
            f"{config.model_path}: config.json has vocab_size {model_config.vocab_size}, "
            f"the worker was told {config.vocab_size}"
        )
    phases.enter("weights")
    files = _files(config)
    dtype = _dtype(config, model_config, files)
    if any(tensor.name == _HEAD for path in files for tensor in read_header(path)):
        # A head that is stored is used, also where config.json says that it is tied: some are not.
        model_config = replace(model_config, tied_head=False)
    params = Parameters(dtype, torch.device("cpu"))
    model = Decoder(model_config, params)
    if files:
        load_weights(files, params.slots, on_progress=lambda fraction: setattr(phases, "fraction", fraction))
    else:
        fill_dummy(params.slots, seed=config.seed, spread=model_config.initializer_range)
    params.slots.clear()
    phases.enter("pack")
    for fraction in model.finish(kernels):
        phases.fraction = fraction
    phases.enter("kv")
    group = size_kv_group(
        model_config,
        dtype=dtype,
        block_size=config.block_size or _BLOCK_SIZE,
        num_blocks=config.num_blocks,
        memory_bytes=config.kv_cache_memory_bytes,
        max_model_len=config.max_model_len,
    )
    attention = CpuAttention(model_config, group, config.max_model_len, dtype)
    _log.info(
        "%s in %s on %d threads, %d KV blocks of %d tokens",
        model_config.architecture,
        str(dtype).removeprefix("torch."),
        torch.get_num_threads(),
        group.num_blocks,
        group.block_size,
    )
    return CpuRunner(config, model, attention)


def _files(config: WorkerConfig) -> list[Path]:
    if config.load_format == "dummy":
        return []
    if config.load_format not in ("auto", "safetensors"):
        raise UsageError(f"load_format must be auto, safetensors or dummy, got {config.load_format!r}")
    return weight_files(Path(config.model_path))


def _dtype(config: WorkerConfig, model_config: ModelConfig, files: list[Path]) -> torch.dtype:
    """The configured dtype; "auto" is config.json's, or else what the checkpoint was saved in."""
    name = config.dtype if config.dtype != "auto" else model_config.dtype
    if name is None:
        return checkpoint_dtype(files[0]) if files else torch.float32
    if name not in _DTYPES:
        raise UsageError(f"dtype must be auto, {', '.join(_DTYPES)}, got {name!r}", param="dtype")
    return _DTYPES[name]
