"""Engine arguments: the names are vLLM's where vLLM has the argument."""

import dataclasses
import os
from dataclasses import dataclass

from ...protocol.errors import UsageError

DEVICES = ("auto", "cpu", "cuda", "sim")
DTYPES = ("auto", "float32", "bfloat16", "float16")
LOAD_FORMATS = ("auto", "safetensors", "dummy")
QUANTIZATIONS = ("", "fp8")
ORDERS = ("fcfs", "priority", "deadline", "fair")

# field: (lowest, highest), whole numbers where these are ints; None is allowed where it is the default.
_RANGES: dict[str, tuple[float, float]] = {
    "seed": (-(2**63), 2**64 - 1),
    "max_model_len": (1, 2**31 - 1),
    "max_num_seqs": (1, 8192),
    "max_num_batched_tokens": (1, 2**20),
    "gpu_memory_utilization": (0.01, 1.0),
    "tensor_parallel_size": (1, 64),
    "block_size": (1, 1024),
    "num_gpu_blocks_override": (1, 2**31 - 1),
    "kv_cache_memory_bytes": (1, 2**48),
    "cpu_threads": (1, 4096),
    "request_timeout": (0.0, 1e9),
    "max_queued_requests": (0, 2**31 - 1),
    "max_queued_tokens": (0, 2**31 - 1),
    "target_ttft_ms": (0.0, 1e9),
    "target_itl_ms": (0.0, 1e6),
    "max_batch_delay_ms": (0.0, 1e5),
    "max_restarts": (0, 1000),
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "device": DEVICES,
    "dtype": DTYPES,
    "load_format": LOAD_FORMATS,
    "quantization": QUANTIZATIONS,
    "scheduling_policy": ORDERS,
    "log_level": ("DEBUG", "INFO", "WARNING", "ERROR"),
}


# Arguments of vLLM's that change nothing here, which nobody may learn from a measurement.
_REFUSED = {
    "trust_remote_code": "Octavo runs no code of a model",
    "batch_invariant": "on CUDA, sums are split by what shares the step",
}

# Other words for a dtype that programs use.
_DTYPE_NAMES = {"half": "float16", "float": "float32"}


@dataclass(kw_only=True)
class EngineArgs:
    """How an engine is built. None means: measured or taken from the model.

    Raises UsageError that names the argument and the allowed values.
    """

    model: str  # a local folder, a hub name, or "demo"
    tokenizer: str | None = None  # a local folder; None: the model's
    served_model_name: str | None = None
    device: str = "auto"
    dtype: str = "auto"  # "auto" follows the checkpoint
    seed: int = 0  # of dummy weights, and of the Python API's requests that have none
    load_format: str = "auto"
    quantization: str = ""  # "fp8": the layers' weights in 8 bits, on CUDA
    max_model_len: int | None = None
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    enable_prefix_caching: bool = True
    block_size: int | None = None
    num_gpu_blocks_override: int | None = None
    gpu_memory_utilization: float = 0.9
    kv_cache_memory_bytes: int | None = None  # on the CPU; None: 512 MiB
    tensor_parallel_size: int = 1
    enforce_eager: bool = False
    batch_invariant: bool = False
    cpu_threads: int | None = None  # None: all cores
    request_timeout: float = 0.0  # seconds; 0: none
    max_queued_requests: int = 0  # 0: no bound
    max_queued_tokens: int = 0  # 0: no bound
    scheduling_policy: str = "fcfs"
    target_ttft_ms: float = 0.0  # first tokens are due so long behind arrival, for "deadline"; 0: a minute
    fair_weights: str = ""  # "name=weight,..." of users, for "fair"
    target_itl_ms: float = 0.0  # pace that decodes keep while prompts are read; 0: none
    max_batch_delay_ms: float = 0.0  # prompts may wait so long for others to share their first step
    max_restarts: int = 3  # of one process, without a completed step between; 0: its end is the engine's
    trust_remote_code: bool = False  # code from a model folder is never run
    disable_log_stats: bool = False  # either way: there are none in the log
    journal: str = ""  # file that the scheduler writes its events to
    sim: str = ""  # options of the simulated device, "key=value,..."
    log_level: str = "WARNING"

    def __post_init__(self) -> None:
        self._take_other_spellings()
        if not isinstance(self.model, str) or not self.model:
            raise UsageError(
                f"model must be a folder, a hub name or 'demo', got {self.model!r}", param="model"
            )
        for field in dataclasses.fields(self):
            _check_type(field.name, getattr(self, field.name), field.default)
        for name, (low, high) in _RANGES.items():
            _check_range(name, getattr(self, name), low, high)
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                allowed = ", ".join(repr(choice) for choice in choices)
                raise UsageError(f"{name} must be one of {allowed}, got {getattr(self, name)!r}", param=name)
        for name, reason in _REFUSED.items():
            if getattr(self, name):
                raise UsageError(f"{name} is not supported: {reason}", param=name)

    def _take_other_spellings(self) -> None:
        """What programs write for the same thing: a path, a dtype of torch's, no quantization."""
        if isinstance(self.model, os.PathLike):
            self.model = os.fspath(self.model)
        dtype = str(self.dtype).removeprefix("torch.")
        self.dtype = _DTYPE_NAMES.get(dtype, dtype)
        self.quantization = self.quantization or ""


class AsyncEngineArgs(EngineArgs):
    """The same arguments, under the name that programs for `AsyncLLMEngine` use."""


def engine_args(model: str, **arguments: object) -> EngineArgs:
    """EngineArgs from keyword arguments. Raises UsageError for a name that does not exist."""
    known = {field.name for field in dataclasses.fields(EngineArgs)}
    unknown = sorted(set(arguments) - known)
    if unknown:
        raise UsageError(
            f"unknown engine argument {unknown[0]!r}; known are {', '.join(sorted(known))}", param=unknown[0]
        )
    return EngineArgs(model=model, **arguments)  # type: ignore[arg-type]


def _check_type(name: str, value: object, default: object) -> None:
    """Numbers have ranges, and are checked by them."""
    if value is None and default is not None and default is not dataclasses.MISSING:
        raise UsageError(f"{name} must not be None", param=name)
    for kind, word in ((bool, "True or False"), (str, "a string")):
        if isinstance(default, kind) and not isinstance(value, kind):
            raise UsageError(f"{name} must be {word}, got {value!r}", param=name)


def _check_range(name: str, value: object, low: float, high: float) -> None:
    if value is None:
        return
    kinds, word = ((int,), "an integer") if isinstance(low, int) else ((int, float), "a number")
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        raise UsageError(f"{name} must be {word} in [{low}, {high}], got {value!r}", param=name)
