"""Bringing a model up on a CUDA device."""

import logging
from dataclasses import dataclass
from pathlib import Path

import torch

from ...protocol.config import WorkerConfig
from ...protocol.errors import ModelError, UsageError
from ...protocol.lifecycle import KVGroup
from ..loading import LoadedModel, load_model
from ..models import ModelConfig, read_config
from ..phases import StartPhases
from ..rows import RowTable
from .model import Arena, CudaAttention, CudaOps, Fp8Layers, has_fp8_layers, has_lone_layers
from .model.memory import DeviceMemory, size_kv_groups
from .rows import Intake, RowColumns, Staging
from .rows.token_lists import ListPool
from .runner import NUM_SLOTS, CudaRunner
from .steps.computation import Computation, DeviceParts
from .steps.drawing import Drawing
from .steps.graphs import CudaGraphs, EagerGraphs, Graphs
from .steps.queue import CudaQueue, HostQueue, Queue
from .steps.results import Results
from .steps.sizes import Sizes
from .steps.tensors import StepBuffers
from .warm import forms, largest_sizes, prepare

_log = logging.getLogger(__name__)

_BLOCK_SIZE = 64
_GRAPH_TOKENS = 1024
_GRAPH_TOKENS_SMALL = 2048  # a step of a model under a billion weights is bound by its launches for longer
_SMALL_MODEL = 1 << 30
_CAPTURE_SECONDS = 2.5  # of a start; what is left is captured when the worker is idle
_MIN_LISTS = 1 << 18
_FP8_CAPABILITY = (8, 9)  # the first whose products take 8-bit floating point


@dataclass(frozen=True, slots=True)
class Device:
    """Where and how steps run."""

    name: torch.device
    queue: Queue
    graphs: Graphs
    pinned: bool  # host buffers are read by the device while the host goes on


def cuda_device(config: WorkerConfig) -> Device:
    """The configured CUDA device, which becomes this thread's current one, with a stream of its own."""
    name = torch.device("cuda", config.device_index)
    torch.cuda.set_device(name)
    torch.cuda.set_stream(torch.cuda.Stream(name))  # type: ignore[no-untyped-call]
    graphs = EagerGraphs() if config.enforce_eager else CudaGraphs()
    return Device(name, CudaQueue(), graphs, pinned=True)


def host_device() -> Device:
    """The CPU's memory, for kernels that are interpreted."""
    return Device(torch.device("cpu"), HostQueue(), EagerGraphs(), pinned=False)


@torch.inference_mode()
def load_cuda(config: WorkerConfig, phases: StartPhases) -> CudaRunner:
    """Load the model of a folder. Raises a StartupError that names what is wrong."""
    _refuse_unsupported(read_config(Path(config.model_path)).within(config.max_model_len))
    phases.enter("device")
    device = cuda_device(config)
    _refuse_old_device(config, device.name)
    arena = Arena(device.name)
    ops = CudaOps(arena, config.quantization)
    model = load_model(config, phases, device=device.name, ops=ops)
    phases.enter("kv")
    build = Build(config, device, model, ops, arena)
    memory = DeviceMemory()
    for size in largest_sizes(build.sizes):
        build.computation.warm(size)
    num_graphs = 2 * len(build.sizes.bodies())
    groups = size_kv_groups(
        model.decoder.config,
        config,
        dtype=model.dtype,
        block_size=build.block_size,
        use=memory.measure(num_graphs=0 if config.enforce_eager else num_graphs),
    )
    runner = build.finish(groups)
    phases.enter("kernels")
    every = forms(build.sizes)
    prepare(build.computation, every, seconds=float("inf"), on_progress=phases.report)
    phases.enter("graphs")
    prepare(
        build.computation, build.computation.missing(), seconds=_CAPTURE_SECONDS, on_progress=phases.report
    )
    torch.cuda.synchronize()
    return runner


def _refuse_unsupported(model: ModelConfig) -> None:
    if model.experts is not None:
        raise ModelError(f"{model.architecture} runs on the CPU only: use --device cpu")


def _refuse_old_device(config: WorkerConfig, device: torch.device) -> None:
    major, minor = torch.cuda.get_device_capability(device)
    if config.quantization and (major, minor) < _FP8_CAPABILITY:
        raise UsageError(
            f"quantization {config.quantization!r} needs a GPU of compute capability 8.9 or later, "
            f"this one has {major}.{minor}",
            param="quantization",
        )


class Build:
    """Puts a runner together; its computation can run steps of padding before there is a KV cache."""

    def __init__(
        self, config: WorkerConfig, device: Device, model: LoadedModel, ops: CudaOps, arena: Arena
    ) -> None:
        self._config, self._device, self._arena = config, device, arena
        decoder = model.decoder
        self._vocab_size = decoder.config.vocab_size
        self.block_size = config.block_size or _BLOCK_SIZE
        num_groups = len(decoder.config.groups)
        self.sizes = _sizes(config, decoder.config)
        max_rows, max_tokens = self.sizes.rows[-1], self.sizes.tokens[-1]
        num_blocks = -(-config.max_model_len // self.block_size)
        lists_size = max(_MIN_LISTS, 2 * self._vocab_size)
        self._columns = RowColumns(
            config.max_num_seqs, num_blocks, num_groups, lists_size, device=device.name
        )
        self._staging = Staging(
            max_rows,
            len(self._columns.state),
            config.max_num_batched_tokens,
            num_slots=NUM_SLOTS,
            device=device.name,
            pinned=device.pinned,
        )
        self._lists = ListPool(self._columns, config.eos_token_ids)
        buffers = StepBuffers(self._staging, max_tokens=max_tokens, num_groups=num_groups, device=device.name)
        self._drawing = Drawing(
            self._columns, self._lists, buffers, max_lines=max_rows, vocab_size=self._vocab_size
        )
        self._attention = CudaAttention(
            decoder.config,
            self._columns.tables,
            arena,
            max_rows=max_rows,
            max_tokens=max_tokens,
            max_model_len=config.max_model_len,
            dtype=model.dtype,
            device=device.name,
        )
        self._attention.allocate([KVGroup(1, self.block_size)] * num_groups)
        parts = DeviceParts(
            model=decoder,
            ops=ops,
            fp8_layers=Fp8Layers(decoder, arena) if has_fp8_layers(decoder) else None,
            attention=self._attention,
            columns=self._columns,
            staging=self._staging,
            buffers=buffers,
            drawing=self._drawing,
        )
        self.computation = Computation(parts, self.sizes, device.graphs)

    def finish(self, groups: tuple[KVGroup, ...]) -> CudaRunner:
        """The runner, with a KV cache. What was run so far must have been the largest steps."""
        config, device = self._config, self._device
        self._arena.freeze()
        self._attention.allocate(groups)
        table = RowTable(config.max_num_seqs, config.max_model_len, groups)
        return CudaRunner(
            kv_groups=groups,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            vocab_size=self._vocab_size,
            intake=Intake(
                table,
                self._columns,
                self._staging,
                self._lists,
                max_tokens=config.max_num_batched_tokens,
            ),
            staging=self._staging,
            drawing=self._drawing,
            computation=self.computation,
            queue=device.queue,
            results=Results(device.queue, self._drawing, num_slots=NUM_SLOTS, pinned=device.pinned),
        )


def _sizes(config: WorkerConfig, model: ModelConfig) -> Sizes:
    graph_tokens = _GRAPH_TOKENS_SMALL if model.num_weights < _SMALL_MODEL else _GRAPH_TOKENS
    max_tokens = config.max_num_batched_tokens
    # A step has no more rows than tokens.
    return Sizes(
        min(config.max_num_seqs, max_tokens), max_tokens, graph_tokens, lone_row=has_lone_layers(model)
    )
