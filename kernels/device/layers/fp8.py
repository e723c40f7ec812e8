"""Linear layers in 8-bit floating point: a kernel to quantize tokens, and the library's matrix product."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..checks import check, check_same_device, check_shape, new_output

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_BLOCK = 1024


@triton.jit
def _quantize_kernel(x_ptr, out_ptr, scale_ptr, x_stride, width, BLOCK: tl.constexpr):
    """scale_t = max |x_t| / 448, out = x / scale_t in float8_e4m3fn. Grid (num_tokens,)."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    x = tl.load(x_ptr + token * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), axis=0) / 448.0, 1e-12)
    tl.store(scale_ptr + token, scale)
    tl.store(out_ptr + token * width + column, (x / scale).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _scale_rows_kernel(x_ptr, scale_ptr, x_stride, width, BLOCK: tl.constexpr):
    """x_t *= scale_t, in place. Grid (num_tokens, ceil(width / BLOCK))."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    at = x_ptr + token * x_stride + column
    x = tl.load(at, mask=inside, other=0.0).to(tl.float32) * tl.load(scale_ptr + token)
    tl.store(at, x.to(x_ptr.dtype.element_ty), mask=inside)


def quantize_tokens(x: Tensor, *, out: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """See `reference.quantize_tokens`."""
    num_tokens, width = x.shape
    check("x", x, dim=2, dtype=_FLOATS)
    if out is None:
        out = (
            new_output("out", (num_tokens, width), x, torch.float8_e4m3fn),
            new_output("out", (num_tokens,), x, torch.float32),
        )
    check("out", out[0], dim=2, dtype=torch.float8_e4m3fn, contiguous=True)
    check_shape("out", out[0], (num_tokens, width))
    check("out scale", out[1], dim=1, dtype=torch.float32)
    check_shape("out scale", out[1], (num_tokens,))
    check_same_device(x=x, out=out[0], out_scale=out[1])
    block = triton.next_power_of_2(width)
    warps = min(max(block // 512, 1), 16)
    _quantize_kernel[(num_tokens,)](x, *out, x.stride(0), width, BLOCK=block, num_warps=warps)
    return out


def fp8_linear(
    x: Tensor,
    x_scale: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
    one: Tensor | None = None,
) -> Tensor:
    """See `reference.fp8_linear`.

    The product runs with scales of whole tensors, which is fast at every size, and the tokens' scales are
    applied to its result: the library's form with a scale a token is slow where K is large and T small.

    Args:
        one: [1] float32 that holds 1, to be given while capturing.
    """
    check("x", x, dim=2, dtype=torch.float8_e4m3fn, contiguous=True)
    check("weight", weight, dim=2, dtype=torch.float8_e4m3fn, contiguous=True)
    (num_tokens, width), num_rows = x.shape, weight.shape[0]
    check_shape("weight", weight, (num_rows, width))
    check_shape("x_scale", x_scale, (num_tokens,))
    check("x_scale", x_scale, dtype=torch.float32)
    check_shape("weight_scale", weight_scale, (1,))
    if out is None:
        out = new_output("out", (num_tokens, num_rows), x, dtype)
    check_shape("out", out, (num_tokens, num_rows))
    check_same_device(x=x, x_scale=x_scale, weight=weight, weight_scale=weight_scale, out=out)
    if one is None:
        one = new_output("one", (1,), x, torch.float32).fill_(1.0)
    torch._scaled_mm(x, weight.t(), scale_a=one, scale_b=weight_scale, out_dtype=out.dtype, out=out)
    grid = (num_tokens, triton.cdiv(num_rows, _BLOCK))
    _scale_rows_kernel[grid](out, x_scale, out.stride(0), num_rows, BLOCK=_BLOCK, num_warps=4)
    return out
