"""From engine arguments to the configuration of each process."""

import os
from pathlib import Path

from ...protocol.config import SchedulerConfig, WorkerConfig, save_config
from ...protocol.errors import UsageError
from ...protocol.lifeline import Lifeline
from ..engine.args import EngineArgs
from ..engine.resolve import ResolvedModel
from ..text.conversion import tokenizer_file
from .children import ChildSpec
from .run_dir import RunDir

CLIENTS = "clients"
WORKERS = "workers"
_CPU_KV_BYTES = 512 << 20
_FEW_CORES = 4  # where polling for a message takes a core away from the work
_POLL_US = 200


def engine_specs(
    args: EngineArgs,
    model: ResolvedModel,
    run_dir: RunDir,
    lifeline: Lifeline,
    extra_endpoints: tuple[str, ...] = (),
) -> tuple[ChildSpec, ...]:
    """Write the configurations of scheduler and workers; workers, the slowest to start, come first."""
    scheduler = _scheduler_config(args, model, run_dir, lifeline, extra_endpoints)
    workers = [
        _worker_config(args, model, run_dir, lifeline, rank) for rank in range(args.tensor_parallel_size)
    ]
    specs = []
    for module, stem, config in (
        *(("worker_proc", f"worker-{worker.group}-{worker.rank}", worker) for worker in workers),
        ("scheduler_proc", "scheduler", scheduler),
    ):
        path = run_dir.path / f"{stem}.json"
        save_config(config, path)
        specs.append(ChildSpec(module, path, (lifeline.read_fd,), run_dir.metrics))
    return tuple(specs)


def _scheduler_config(
    args: EngineArgs,
    model: ResolvedModel,
    run_dir: RunDir,
    lifeline: Lifeline,
    extra_endpoints: tuple[str, ...],
) -> SchedulerConfig:
    return SchedulerConfig(
        run_dir=str(run_dir.path),
        client_endpoint=run_dir.endpoint(CLIENTS),
        extra_endpoints=extra_endpoints,
        worker_endpoint=run_dir.endpoint(WORKERS),
        lifeline_fd=lifeline.read_fd,
        parent_pid=os.getpid(),
        model=model.served_name,
        vocab_size=model.vocab_size,
        max_model_len=model.max_model_len,
        eos_token_ids=model.eos_token_ids,
        group_size=args.tensor_parallel_size,
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        enable_prefix_caching=args.enable_prefix_caching,
        scheduling_policy=args.scheduling_policy,
        target_ttft_ms=args.target_ttft_ms,
        target_itl_ms=args.target_itl_ms,
        fair_weights=args.fair_weights,
        max_batch_delay_ms=args.max_batch_delay_ms,
        max_queued_requests=args.max_queued_requests,
        max_queued_tokens=args.max_queued_tokens,
        request_timeout=args.request_timeout,
        poll_us=_poll_us(),
        journal=str(Path(args.journal).absolute()) if args.journal else "",
        log_level=args.log_level,
    )


def _worker_config(
    args: EngineArgs, model: ResolvedModel, run_dir: RunDir, lifeline: Lifeline, rank: int
) -> WorkerConfig:
    device = _device(args.device)
    if args.tensor_parallel_size > 1 and device == "cuda":
        raise UsageError(
            "tensor_parallel_size above 1 runs on the CPU only, the device is 'cuda'",
            param="tensor_parallel_size",
        )
    if args.quantization and device != "cuda":
        raise UsageError(
            f"quantization {args.quantization!r} runs on CUDA only, the device is {device!r}",
            param="quantization",
        )
    return WorkerConfig(
        run_dir=str(run_dir.path),
        scheduler_endpoint=run_dir.endpoint(WORKERS),
        lifeline_fd=lifeline.read_fd,
        parent_pid=os.getpid(),
        rank=rank,
        group_size=args.tensor_parallel_size,
        device=device,
        model_path=str(model.path),
        vocab_size=model.vocab_size,
        tokenizer_path=str(tokenizer_file(model.tokenizer_path) or ""),
        eos_token_ids=model.eos_token_ids,
        load_format=args.load_format,
        dtype=args.dtype,
        quantization=args.quantization,
        max_model_len=model.max_model_len,
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        block_size=args.block_size or 0,
        num_blocks=args.num_gpu_blocks_override or 0,
        gpu_memory_utilization=args.gpu_memory_utilization,
        kv_cache_memory_bytes=args.kv_cache_memory_bytes or _CPU_KV_BYTES,
        enforce_eager=args.enforce_eager,
        cpu_threads=args.cpu_threads or 0,
        poll_us=_poll_us(),
        seed=args.seed,
        sim=args.sim,
        log_level=args.log_level,
    )


def _device(name: str) -> str:
    """The device that "auto" stands for: the driver's file says whether there is a GPU, without torch."""
    if name != "auto":
        return name
    return "cuda" if Path("/dev/nvidia0").exists() else "cpu"


def _poll_us() -> int:
    return _POLL_US if len(os.sched_getaffinity(0)) > _FEW_CORES else 0
