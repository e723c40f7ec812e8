"""Root-mean-square normalization, with and without the residual add in front."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..checks import check, check_same_device, check_shape, new_output

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@triton.jit
def _rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    x_stride,
    residual_stride,
    out_stride,
    hidden,
    eps,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out = s / sqrt(mean(s^2) + eps) * weight, with s = x, or s = residual += x when ADD.

    Grid (num_rows,): a program owns one row, held in registers whole. Rows may have any stride.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < hidden
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        at = residual_ptr + row * residual_stride + column
        total = x + tl.load(at, mask=inside, other=0.0).to(tl.float32)
        rounded = total.to(residual_ptr.dtype.element_ty)
        tl.store(at, rounded, mask=inside)
        x = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / hidden + eps)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    normed = (x * scale * weight).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * out_stride + column, normed, mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float, *, out: Tensor | None = None) -> Tensor:
    """See `reference.rms_norm`; x is [num_tokens, hidden] and `out` may be x."""
    return _launch(x, None, weight, eps, out)


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, *, out: Tensor | None = None
) -> Tensor:
    """See `reference.add_rms_norm`; x and residual are [num_tokens, hidden]."""
    check("residual", residual, dim=2, dtype=_FLOATS)
    check_shape("residual", residual, tuple(x.shape))
    return _launch(x, residual, weight, eps, out)


def _launch(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float, out: Tensor | None) -> Tensor:
    check("x", x, dim=2, dtype=_FLOATS)
    hidden = x.shape[-1]
    check_shape("weight", weight, (hidden,))
    if out is None:
        out = new_output("out", tuple(x.shape), x)
    check("out", out, dim=2, dtype=x.dtype)
    check_shape("out", out, tuple(x.shape))
    check_same_device(x=x, residual=residual, weight=weight, out=out)
    block = triton.next_power_of_2(hidden)
    _rms_norm_kernel[(x.shape[0],)](
        x,
        residual if residual is not None else x,
        weight,
        out,
        x.stride(0),
        residual.stride(0) if residual is not None else 0,
        out.stride(0),
        hidden,
        eps,
        ADD=residual is not None,
        BLOCK=block,
        num_warps=min(max(block // 512, 1), 16),
    )
    return out
