"""Flags of the engine: one for each argument of `EngineArgs` that makes sense on a command line."""

import argparse
import dataclasses
import typing

from ..engine.args import EngineArgs

_GROUPS: dict[str, dict[str, str]] = {
    "model": {
        "tokenizer": "folder of the tokenizer, when it is not the model's",
        "dtype": "auto (as the checkpoint), float32, bfloat16 or float16",
        "load_format": "auto, safetensors, or dummy for random weights",
        "quantization": "fp8 to keep the layers' weights in 8 bits, on CUDA",
        "max_model_len": "tokens of prompt and output together",
        "seed": "of dummy weights",
    },
    "device": {
        "device": "auto, cpu, cuda, or sim for a device without a model",
        "cpu_threads": "threads that compute on the CPU, of each worker",
        "tensor_parallel_size": "workers that compute each step together; on the CPU",
        "enforce_eager": "launch every kernel by itself instead of replaying graphs",
        "sim": "options of the simulated device, key=value,...",
    },
    "memory and batches": {
        "max_num_seqs": "most choices that run at once",
        "max_num_batched_tokens": "most tokens computed in a step",
        "block_size": "tokens of a KV block",
        "num_gpu_blocks_override": "KV blocks, instead of as many as fit; on the CPU too",
        "gpu_memory_utilization": "share of the GPU's memory that may be used",
        "kv_cache_memory_bytes": "size of the KV cache on the CPU",
        "enable_prefix_caching": "reuse the KV of prompts that begin alike",
    },
    "requests": {
        "request_timeout": "seconds a request may take; 0 for no bound",
        "max_queued_requests": "requests that may wait before others are refused with 429; 0 for no bound",
        "max_queued_tokens": "prompt tokens that may wait; 0 for no bound",
        "scheduling_policy": "fcfs, priority, deadline or fair",
        "target_ttft_ms": "when first tokens are due, for the order deadline; 0 for a minute",
        "target_itl_ms": "time between tokens that the reading of prompts leaves to answers; 0 for no target",
        "fair_weights": "name=weight,... of users, for the order fair",
        "max_batch_delay_ms": "time that a prompt may wait for others to share its first step",
    },
    "faults": {
        "max_restarts": "restarts of a process that ended, without a completed step between them",
    },
    "diagnosis": {
        "journal": "file that the scheduler writes every event to, for octavo replay; it holds prompts",
        "log_level": "DEBUG, INFO, WARNING or ERROR",
    },
}
_MEASURED = {
    "max_model_len": "the model's",
    "cpu_threads": "all cores",
    "block_size": "by device",
    "num_gpu_blocks_override": "measured",
    "kv_cache_memory_bytes": "512 MiB",
    "tokenizer": "the model's",
    "journal": "none",
    "quantization": "none",
    "fair_weights": "1 each",
    "sim": "none",
}
_FIELDS = {field.name: field for field in dataclasses.fields(EngineArgs)}


def add_engine_flags(parser: argparse.ArgumentParser, **defaults: object) -> None:
    """Add the flags; `defaults` replace those of `EngineArgs`. A flag that is not given leaves no trace."""
    hints = typing.get_type_hints(EngineArgs)
    parser.set_defaults(engine_defaults=defaults)
    for title, flags in _GROUPS.items():
        group = parser.add_argument_group(title)
        for name, text in flags.items():
            default = _MEASURED.get(name, defaults.get(name, _FIELDS[name].default))
            shown = ("on" if default else "off") if hints[name] is bool else default
            _add_flag(group, name, hints[name], f"{text} (default: {shown})")


def engine_args(arguments: argparse.Namespace, **more: object) -> EngineArgs:
    """The `EngineArgs` of a parsed command line. Raises UsageError for a value out of range."""
    given = {name: value for name, value in vars(arguments).items() if name in _FIELDS}
    return EngineArgs(**{**arguments.engine_defaults, **given, **more})


def _add_flag(group: "argparse._ArgumentGroup", name: str, hint: object, text: str) -> None:
    flag = f"--{name.replace('_', '-')}"
    if hint is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text)
        return
    kind = next(kind for kind in (typing.get_args(hint) or (hint,)) if kind is not type(None))
    metavar = {int: "N", float: "X", str: "TEXT"}[kind]
    group.add_argument(flag, type=kind, metavar=metavar, default=argparse.SUPPRESS, help=text)
