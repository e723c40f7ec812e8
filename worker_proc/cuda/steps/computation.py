"""What a step computes on the device: rows and inputs, layers, and the draw."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ....kernels import device as kernels
from ...models import Decoder
from ..model import CudaAttention, CudaOps, Fp8Layers, lone_body
from ..rows import HostStep, RowColumns, Staging
from .drawing import Drawing
from .graphs import Graphs
from .sizes import BodySize, HeadSize, Sizes
from .tensors import StepBuffers


@dataclass(frozen=True, slots=True)
class DeviceParts:
    """All that a step works with on the device."""

    model: Decoder
    ops: CudaOps
    fp8_layers: Fp8Layers | None  # of a model that has them
    attention: CudaAttention
    columns: RowColumns
    staging: Staging
    buffers: StepBuffers
    drawing: Drawing


class Computation:
    """Launches steps, as two graphs each: layers, and from the lines that sample to their tokens.

    The two have keys of their own: the first depends on how many tokens a step has, the second on how many
    lines it draws and what their rows ask for.
    """

    def __init__(self, parts: DeviceParts, sizes: Sizes, graphs: Graphs) -> None:
        self._parts = parts
        self._sizes = sizes
        self._graphs = graphs
        self._ends: tuple[Tensor, Tensor] | None = None

    def update_rows(self) -> None:
        """Apply what was staged for a step without rows."""
        kernels.apply_diff(self._parts.columns.state, self._parts.staging.changes)

    def run_body(self, step: HostStep) -> None:
        """Bring the rows up to date and run the layers."""
        size = self._sizes.body(step.num_rows, step.num_tokens, decodes_only=step.decodes_only)
        if self._sizes.captured(size):
            self._graphs.run(size, self._work(size))
        else:
            self._body(size)

    def run_head(self, step: HostStep) -> None:
        """Draw the tokens of the lines that sample."""
        size = HeadSize(
            num_lines=self._sizes.lines(len(step.sampled_rows)),
            filtered=step.filtered or step.ruled,
            ruled=step.ruled,
            logprobs=bool((step.num_logprobs >= 0).any()),
        )
        self._graphs.run(size, self._work(size))

    def missing(self) -> list[BodySize | HeadSize]:
        """What will be wanted and has no graph yet, most wanted first."""
        heads = [HeadSize(lines, False, False, False) for lines in self._sizes.rows]
        return [size for size in (*self._sizes.bodies(), *heads) if not self._graphs.has(size)]

    def warm(self, size: BodySize | HeadSize) -> None:
        """Run a step of padding alone, which changes nothing: all kernels of its size are loaded then."""
        staging = self._parts.staging
        staging.begin()
        staging.write_nothing()
        staging.send()
        self._work(size)()

    def prepare(self, size: BodySize | HeadSize) -> None:
        """Warm a size, and capture its graph if it is one that has a graph."""
        self.warm(size)
        if isinstance(size, HeadSize) or self._sizes.captured(size):
            self._graphs.capture(size, self._work(size))

    def _work(self, size: BodySize | HeadSize) -> Callable[[], None]:
        if isinstance(size, BodySize):
            return lambda: self._body(size)
        return lambda: self._head(size)

    def _body(self, size: BodySize) -> None:
        parts = self._parts
        step = parts.buffers.of(size)
        kernels.apply_diff(parts.columns.state, parts.staging.changes)
        kernels.build_step_inputs(
            step.columns,
            parts.columns.last_token,
            parts.columns.tables,
            step.inputs,
            block_size=parts.attention.block_size,
        )
        attend, token_ids = parts.attention.begin(step), step.inputs.token_ids
        if size.lone:
            ends = lone_body(parts.model, parts.ops, token_ids, attend)
        elif parts.fp8_layers is not None:
            ends = parts.fp8_layers.run(parts.ops.embed(token_ids, parts.model.embed), attend)
        else:
            ends = parts.model.body(token_ids, attend)
        if self._ends is None or len(ends[0]) > len(self._ends[0]):
            self._ends = ends

    def _head(self, size: HeadSize) -> None:
        parts = self._parts
        assert self._ends is not None
        index = parts.buffers.logit_tokens[: size.num_lines]
        out, residual = (
            parts.ops.lines(use, x, index)
            for use, x in zip(("last out", "last residual"), self._ends, strict=True)
        )
        parts.drawing.draw(parts.model.logits(parts.model.hidden(out, residual)), size)
