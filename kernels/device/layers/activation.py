"""Gated activations: act(gate) * up over a fused [gate | up] projection."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..checks import check, check_same_device, check_shape, new_output

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_BLOCK = 1024


@triton.jit
def silu(x):
    """x * sigmoid(x) of float32 values."""
    return x * tl.sigmoid(x)


@triton.jit
def gelu_tanh(x):
    """gelu in its tanh form: 0.5 x (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    return x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))


@triton.jit
def _gated_kernel(x_ptr, out_ptr, x_stride, out_stride, width, GELU: tl.constexpr, BLOCK: tl.constexpr):
    """out[t, i] = act(x[t, i]) * x[t, width + i].

    Grid (num_tokens, ceil(width / BLOCK)).
    """
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    at = x_ptr + token * x_stride + column
    gate = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(at + width, mask=inside, other=0.0).to(tl.float32)
    result = gelu_tanh(gate) * up if GELU else silu(gate) * up
    tl.store(out_ptr + token * out_stride + column, result.to(out_ptr.dtype.element_ty), mask=inside)


def silu_mul(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """See `reference.silu_mul`."""
    return _launch(x, out, gelu=False)


def gelu_tanh_mul(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """See `reference.gelu_tanh_mul`."""
    return _launch(x, out, gelu=True)


def _launch(x: Tensor, out: Tensor | None, *, gelu: bool) -> Tensor:
    check("x", x, dim=2, dtype=_FLOATS)
    num_tokens, width = x.shape[0], x.shape[1] // 2
    if out is None:
        out = new_output("out", (num_tokens, width), x)
    check("out", out, dim=2, dtype=x.dtype)
    check_shape("out", out, (num_tokens, width))
    check_same_device(x=x, out=out)
    grid = (num_tokens, triton.cdiv(width, _BLOCK))
    _gated_kernel[grid](x, out, x.stride(0), out.stride(0), width, GELU=gelu, BLOCK=_BLOCK, num_warps=4)
    return out
