"""A model folder brought up on a device, the same for all devices that run models."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from ..protocol.config import WorkerConfig
from ..protocol.errors import ModelError, UsageError
from .models import Decoder, ModelConfig, read_config
from .models.layers import Ops
from .models.parameters import Parameters
from .models.shards import Shard
from .parallel import ALONE, Ranks
from .phases import StartPhases
from .weights import checkpoint_dtype, fill_dummy, load_weights, read_header, weight_files

_HEAD = "lm_head.weight"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class LoadedModel(NamedTuple):
    """A model that can be run."""

    decoder: Decoder
    dtype: torch.dtype


def load_model(
    config: WorkerConfig,
    phases: StartPhases,
    *,
    device: torch.device,
    ops: Ops,
    ranks: Ranks = ALONE,
) -> LoadedModel:
    """Load the weights of a folder onto a device, of `ranks` what this one holds, and bring them into the
    form of its operators.

    Enters the phases "weights" and "pack". Raises a StartupError that names what is wrong.
    """
    model_config = read_config(Path(config.model_path)).within(config.max_model_len)
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
    params = Parameters(dtype, device, wide_norms=model_config.norm_offset != 0.0)
    shard = Shard(model_config, config.rank, config.group_size)
    decoder = Decoder(shard, params, ranks)
    if files:
        load_weights(files, params.slots, params.cuts, on_progress=phases.report)
    else:
        fill_dummy(params.slots, params.cuts, seed=config.seed, spread=model_config.initializer_range)
    params.slots.clear()
    phases.enter("pack")
    for fraction in decoder.finish(ops):
        phases.fraction = fraction
    return LoadedModel(decoder, dtype)


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
