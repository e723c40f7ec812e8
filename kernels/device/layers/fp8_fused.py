"""What stands between two products in 8 bits, in one pass: it takes the scales that the product in front left
out, and quantizes for the one behind."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..checks import check, check_same_device, check_shape
from .activation import silu
from .fp8 import check_token_scales, quantized_output, store_quantized

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@triton.jit
def _quantize_norm_kernel(
    x_ptr, x_scale_ptr, residual_ptr, weight_ptr, out_ptr, scale_ptr, x_stride, residual_stride, hidden, eps,
    SCALED: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """s = x * x_scale, or residual += x * x_scale; out = s / sqrt(mean(s^2) + eps) * weight, quantized.

    Grid (num_tokens,): a program owns one token, held in registers whole.
    """
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < hidden
    x = tl.load(x_ptr + token * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    if SCALED:
        x = x * tl.load(x_scale_ptr + token)
    if ADD:
        at = residual_ptr + token * residual_stride + column
        rounded = (x + tl.load(at, mask=inside, other=0.0).to(tl.float32)).to(residual_ptr.dtype.element_ty)
        tl.store(at, rounded, mask=inside)
        x = rounded.to(tl.float32)
    factor = tl.rsqrt(tl.sum(x * x, axis=0) / hidden + eps)
    normed = x * factor * tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    store_quantized(normed, token, column, inside, out_ptr, scale_ptr, hidden)


@triton.jit
def _quantize_gated_kernel(
    x_ptr, x_scale_ptr, out_ptr, scale_ptr, x_stride, width, SCALED: tl.constexpr, BLOCK: tl.constexpr
):
    """out = silu(x_scale * gate) * (x_scale * up), quantized. Grid (num_tokens,)."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    at = x_ptr + token * x_stride + column
    gate = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(at + width, mask=inside, other=0.0).to(tl.float32)
    if SCALED:
        x_scale = tl.load(x_scale_ptr + token)
        gate, up = gate * x_scale, up * x_scale
    store_quantized(silu(gate) * up, token, column, inside, out_ptr, scale_ptr, width)


def quantize_rms_norm(
    x: Tensor,
    weight: Tensor,
    eps: float,
    *,
    residual: Tensor | None = None,
    x_scale: Tensor | None = None,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """See `reference.quantize_rms_norm`."""
    check("x", x, dim=2, dtype=_FLOATS)
    num_tokens, hidden = x.shape
    check_shape("weight", weight, (hidden,))
    if x_scale is not None:
        check_token_scales("x_scale", x_scale, num_tokens)
    if residual is not None:
        check("residual", residual, dim=2, dtype=_FLOATS)
        check_shape("residual", residual, (num_tokens, hidden))
    check_same_device(x=x, weight=weight, residual=residual, x_scale=x_scale)
    out = quantized_output(x, num_tokens, hidden, out)
    block = triton.next_power_of_2(hidden)
    _quantize_norm_kernel[(num_tokens,)](
        *(x, x if x_scale is None else x_scale, x if residual is None else residual, weight, *out),
        *(x.stride(0), 0 if residual is None else residual.stride(0), hidden, eps),
        SCALED=x_scale is not None,
        ADD=residual is not None,
        BLOCK=block,
        num_warps=min(max(block // 512, 1), 16),
    )
    return out


def quantize_silu_mul(
    x: Tensor, *, x_scale: Tensor | None = None, out: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """See `reference.quantize_silu_mul`."""
    check("x", x, dim=2, dtype=_FLOATS)
    num_tokens, width = x.shape[0], x.shape[1] // 2
    if x_scale is not None:
        check_token_scales("x_scale", x_scale, num_tokens)
    check_same_device(x=x, x_scale=x_scale)
    out = quantized_output(x, num_tokens, width, out)
    block = triton.next_power_of_2(width)
    _quantize_gated_kernel[(num_tokens,)](
        *(x, x if x_scale is None else x_scale, *out, x.stride(0), width),
        SCALED=x_scale is not None,
        BLOCK=block,
        num_warps=min(max(block // 512, 1), 16),
    )
    return out
