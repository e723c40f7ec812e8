"""A CUDA runner for a model folder: on a device, or on the CPU with interpreted kernels."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from octavo.protocol.config import WorkerConfig
from octavo.protocol.lifecycle import KVGroup
from octavo.worker_proc.cuda.load import Build, host_device, load_cuda
from octavo.worker_proc.cuda.model import Arena, CudaOps
from octavo.worker_proc.cuda.runner import CudaRunner
from octavo.worker_proc.cuda.warm import largest_sizes
from octavo.worker_proc.loading import load_model
from octavo.worker_proc.phases import StartPhases

_SETTINGS = {
    "run_dir": "",
    "scheduler_endpoint": "",
    "lifeline_fd": -1,
    "parent_pid": 0,
    "device": "cuda",
    "eos_token_ids": (),
    "max_model_len": 256,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 48,
    "num_blocks": 96,
    "block_size": 16,
    "dtype": "float32",
}


def cuda_config(model: Path, **fields: object) -> WorkerConfig:
    """A configuration for a small model in float32, unless `fields` say otherwise."""
    settings = _SETTINGS | {"model_path": str(model)} | fields
    if "vocab_size" not in settings:
        settings["vocab_size"] = json.loads((model / "config.json").read_text())["vocab_size"]
    return WorkerConfig(**settings)  # type: ignore[arg-type]


def make_cuda_runner(model: Path, **fields: object) -> CudaRunner:
    """A runner on the CUDA device."""
    return load_cuda(cuda_config(model, **fields), StartPhases("start"))


@torch.inference_mode()
def make_interpreted_runner(model: Path, **fields: object) -> CudaRunner:
    """A runner whose kernels Triton interprets, on the CPU's memory; TRITON_INTERPRET must be set."""
    config = cuda_config(model, **fields)
    device = host_device()
    arena = Arena(device.name)
    ops = CudaOps(arena, config.quantization)
    loaded = load_model(config, StartPhases("start"), device=device.name, ops=ops)
    build = Build(config, device, loaded, ops, arena)
    for size in largest_sizes(build.sizes):
        build.computation.warm(size)
    return build.finish(
        tuple(
            KVGroup(config.num_blocks, build.block_size, group.window)
            for group in loaded.decoder.config.groups
        )
    )


@contextmanager
def watched_logits(runner: CudaRunner) -> Iterator[list[torch.Tensor]]:
    """The logits of each step, padding lines included; the runner must not replay graphs."""
    drawing = runner.computation._parts.drawing
    seen: list[torch.Tensor] = []
    original = drawing.draw
    drawing.draw = lambda logits, size: (seen.append(logits.clone()), original(logits, size))[1]
    yield seen
    drawing.draw = original
