"""The frozen configuration of the scheduler and of a worker: a JSON file in the run directory."""

from pathlib import Path
from typing import TypeVar

import msgspec


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a scheduler is told."""

    run_dir: str  # private directory for sockets, metrics files and error lines
    client_endpoint: str  # bound: clients connect here
    extra_endpoints: tuple[str, ...] = ()  # bound too, such as a tcp address for foreign clients
    worker_endpoint: str  # bound: workers connect here
    lifeline_fd: int  # read end of the parent's pipe
    parent_pid: int
    model: str  # served name
    vocab_size: int
    max_model_len: int
    eos_token_ids: tuple[int, ...]
    num_groups: int = 1  # worker groups
    group_size: int = 1  # ranks in a group
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    enable_prefix_caching: bool = True
    scheduling_policy: str = "fcfs"  # or "priority", "deadline", "fair"
    target_ttft_ms: float = 0.0  # first tokens are due so long behind arrival, for "deadline"; 0: a minute
    target_itl_ms: float = 0.0  # chunks of prompts leave decodes this pace, as measured; 0: by tokens alone
    max_batch_delay_ms: float = 0.0  # prompts may wait so long for others to share their first step
    fair_weights: str = ""  # "name=weight,..." of users, for "fair"; 1 for those not named
    max_queued_requests: int = 0  # 0: no bound
    max_queued_tokens: int = 0  # prompt tokens; 0: no bound
    request_timeout: float = 0.0  # seconds; 0: none
    pipeline_depth: int = 2  # plans in flight to a worker
    poll_us: int = 0  # busy polling before blocking while work is in flight
    journal: str = ""  # file to write events to; empty: none
    validate: bool = False  # check invariants after every event
    log_level: str = "INFO"


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a worker is told. A value of 0 means: measure and choose, and say so in the log."""

    run_dir: str
    scheduler_endpoint: str
    lifeline_fd: int
    parent_pid: int
    group: int = 0
    rank: int = 0
    group_size: int = 1
    device: str  # "cpu", "cuda" or "sim"
    device_index: int = 0
    model_path: str  # local folder
    vocab_size: int
    tokenizer_path: str = ""  # a tokenizer.json, for grammars; empty: there is none
    eos_token_ids: tuple[int, ...]  # held back by min_tokens
    load_format: str = "auto"  # "auto", "safetensors" or "dummy"
    dtype: str = "auto"  # "auto", "float32", "bfloat16" or "float16"
    quantization: str = ""  # "fp8": the layers' weights in 8 bits, on "cuda"
    max_model_len: int
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    block_size: int = 0
    num_blocks: int = 0  # overrides the measured number of KV blocks
    gpu_memory_utilization: float = 0.9
    kv_cache_memory_bytes: int = 512 << 20  # CPU
    enforce_eager: bool = False
    cpu_threads: int = 0
    poll_us: int = 0  # busy polling for the next plan before blocking
    seed: int = 0  # of dummy weights
    sim: str = ""  # timing model of the sim worker, "key=value,..."
    log_level: str = "INFO"


Config = TypeVar("Config")


def save_config(config: msgspec.Struct, path: Path) -> None:
    """Write a process's configuration where it will read it; the directory is private."""
    path.write_bytes(msgspec.json.encode(config))


def load_config(path: Path, kind: type[Config]) -> Config:
    """Read a configuration. Raises msgspec.ValidationError for a file of another shape."""
    return msgspec.json.decode(path.read_bytes(), type=kind)
