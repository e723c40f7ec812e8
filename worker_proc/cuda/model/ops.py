"""The operators of a decoder on a CUDA device."""

import torch
from torch import Tensor

from ....kernels import device as kernels
from ...models.layers import Linear
from .arena import Arena
from .fp8 import Fp8Weight, fp8_linear, pack_fp8


class CudaOps:
    """Each writes its result into the arena, so that a step allocates nothing. Shapes as in `Ops`."""

    def __init__(self, arena: Arena, quantization: str = "") -> None:
        self._arena = arena
        self._quantization = quantization

    def pack_linear(self, weight: Tensor) -> Fp8Weight | Tensor:
        return pack_fp8(weight) if self._quantization == "fp8" else weight

    def pack_gated(self, weight: Tensor) -> Fp8Weight | Tensor:
        return self.pack_linear(weight)

    def pack_head(self, weight: Tensor) -> Tensor:
        return weight

    def embed(self, token_ids: Tensor, table: Tensor) -> Tensor:
        out = self._arena.take("residual", len(token_ids), table.shape[1], table.dtype)
        return torch.index_select(table, 0, token_ids, out=out)

    def lines(self, use: str, x: Tensor, index: Tensor) -> Tensor:
        """Lines of x [num_tokens, width] at `index` [S], [S, width]."""
        out = self._arena.take(use, len(index), x.shape[1], x.dtype)
        return torch.index_select(x, 0, index, out=out)

    def linear(self, x: Tensor, packed: Fp8Weight | Tensor, bias: Tensor | None) -> Tensor:
        weight, scale = _weight_and_scale(packed)
        out = self._arena.take("linear", x.shape[0], weight.shape[0], x.dtype)
        if x.shape[0] == 1:
            return kernels.gemv(x, weight, weight_scale=scale, bias=bias, out=out)
        if isinstance(packed, Fp8Weight):
            return fp8_linear(x, packed, bias, out, self._arena)
        if bias is None:
            return torch.mm(x, weight.t(), out=out)
        return torch.addmm(bias, x, weight.t(), out=out)

    def gemv(
        self,
        x: Tensor,
        linear: Linear,
        *,
        norm: tuple[Tensor, float] | None = None,
        swiglu: bool = False,
        residual: Tensor | None = None,
    ) -> Tensor:
        """A linear layer of one token, x [1, in], behind the launch of another kernel of this project.

        Args:
            norm: weight and epsilon of a norm of x in front.
            swiglu: the layer is gate and up, and the result silu(gate) * up.
            residual: [1, out], which the result is added to and which is returned.
        """
        out = None
        assert isinstance(linear.weight, Fp8Weight | Tensor)
        weight, scale = _weight_and_scale(linear.weight)
        if residual is None:
            use, width = ("gated", weight.shape[0] // 2) if swiglu else ("linear", weight.shape[0])
            out = self._arena.take(use, 1, width, x.dtype)
        norm_weight, eps = norm or (None, 0.0)
        return kernels.gemv(
            x,
            weight,
            norm_weight=norm_weight,
            eps=eps,
            weight_scale=scale,
            bias=linear.bias,
            swiglu=swiglu,
            residual=residual,
            out=out,
            pdl=x.is_cuda,
        )

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return kernels.rms_norm(x, weight, eps, out=self._norm_of(x))

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        return kernels.add_rms_norm(x, residual, weight, eps, out=self._norm_of(x))

    def gated_linear(
        self, x: Tensor, packed: Fp8Weight | Tensor, bias: Tensor | None, activation: str
    ) -> Tensor:
        gates = self.linear(x, packed, bias)
        out = self._arena.take("gated", gates.shape[0], gates.shape[1] // 2, x.dtype)
        gate = kernels.silu_mul if activation == "silu" else kernels.gelu_tanh_mul
        return gate(gates, out=out)

    def _norm_of(self, x: Tensor) -> Tensor:
        return self._arena.take("norm", x.shape[0], x.shape[1], x.dtype)


def _weight_and_scale(packed: Fp8Weight | Tensor) -> tuple[Tensor, Tensor | None]:
    return (packed.values, packed.scale) if isinstance(packed, Fp8Weight) else (packed, None)
