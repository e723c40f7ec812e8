"""Linear layers in 8-bit floating point: the library's product, and kernels to quantize and scale tokens."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..checks import check, check_same_device, check_shape, new_output

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_BLOCK = 1024


@triton.jit
def store_quantized(x, token, column, inside, out_ptr, scale_ptr, width):
    """Stores one token's float32 values in 8 bits, and their scale max |x| / 448."""
    scale = tl.maximum(tl.max(tl.abs(x), axis=0) / 448.0, 1e-12)
    tl.store(scale_ptr + token, scale)
    tl.store(out_ptr + token * width + column, (x / scale).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _quantize_kernel(x_ptr, out_ptr, scale_ptr, x_stride, width, BLOCK: tl.constexpr):
    """scale_t = max |x_t| / 448, out = x / scale_t in float8_e4m3fn. Grid (num_tokens,)."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    x = tl.load(x_ptr + token * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    store_quantized(x, token, column, inside, out_ptr, scale_ptr, width)


@triton.jit
def _scale_tokens_kernel(
    x_ptr, scale_ptr, bias_ptr, x_stride, width, BIAS: tl.constexpr, BLOCK: tl.constexpr
):
    """x_t = x_t * scale_t + bias, in place. Grid (num_tokens, ceil(width / BLOCK))."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    at = x_ptr + token * x_stride + column
    x = tl.load(at, mask=inside, other=0.0).to(tl.float32) * tl.load(scale_ptr + token)
    if BIAS:
        x += tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(at, x.to(x_ptr.dtype.element_ty), mask=inside)


def quantized_output(
    like: Tensor, num_tokens: int, width: int, out: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    """`out`, checked, or new tensors for tokens [num_tokens, width] in 8 bits and their scales."""
    if out is None:
        return (
            new_output("out", (num_tokens, width), like, torch.float8_e4m3fn),
            new_output("out", (num_tokens,), like, torch.float32),
        )
    check("out", out[0], dim=2, dtype=torch.float8_e4m3fn, contiguous=True)
    check_shape("out", out[0], (num_tokens, width))
    check_token_scales("out scale", out[1], num_tokens)
    check_same_device(x=like, out=out[0], out_scale=out[1])
    return out


def check_token_scales(name: str, scale: Tensor, num_tokens: int) -> None:
    """Raises ValueError, naming the tensor, unless it is [num_tokens] float32 without gaps."""
    check(name, scale, dim=1, dtype=torch.float32)
    check_shape(name, scale, (num_tokens,))


def quantize_tokens(x: Tensor, *, out: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """See `reference.quantize_tokens`."""
    num_tokens, width = x.shape
    check("x", x, dim=2, dtype=_FLOATS)
    out = quantized_output(x, num_tokens, width, out)
    block = triton.next_power_of_2(width)
    warps = min(max(block // 512, 1), 16)
    _quantize_kernel[(num_tokens,)](x, *out, x.stride(0), width, BLOCK=block, num_warps=warps)
    return out


def fp8_product(
    x: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
    one: Tensor | None = None,
    fast_accumulation: bool = True,
) -> Tensor:
    """See `reference.fp8_product`. The library's form with a scale a token is slow where K is large, T small.

    Args:
        one: [1] float32 that holds 1, to be given while capturing.
        fast_accumulation: sums stay in the matrix unit, which keeps 14 bits of them, instead of being taken
            to float32 every 128 numbers: a hundredth of what the 4 bits of a factor lose.
    """
    check("x", x, dim=2, dtype=torch.float8_e4m3fn, contiguous=True)
    check("weight", weight, dim=2, dtype=torch.float8_e4m3fn, contiguous=True)
    (num_tokens, width), num_rows = x.shape, weight.shape[0]
    check_shape("weight", weight, (num_rows, width))
    check_shape("weight_scale", weight_scale, (1,))
    if out is None:
        out = new_output("out", (num_tokens, num_rows), x, dtype)
    check_shape("out", out, (num_tokens, num_rows))
    check_same_device(x=x, weight=weight, weight_scale=weight_scale, out=out)
    if one is None:
        one = new_output("one", (1,), x, torch.float32).fill_(1.0)
    return torch._scaled_mm(
        x,
        weight.t(),
        scale_a=one,
        scale_b=weight_scale,
        out_dtype=out.dtype,
        use_fast_accum=fast_accumulation,
        out=out,
    )


def scale_tokens(x: Tensor, scale: Tensor, *, bias: Tensor | None = None) -> Tensor:
    """See `reference.scale_tokens`."""
    check("x", x, dim=2, dtype=_FLOATS)
    num_tokens, width = x.shape
    check_token_scales("scale", scale, num_tokens)
    if bias is not None:
        check("bias", bias, dim=1)
        check_shape("bias", bias, (width,))
    check_same_device(x=x, scale=scale, bias=bias)
    _scale_tokens_kernel[(num_tokens, triton.cdiv(width, _BLOCK))](
        *(x, scale, x if bias is None else bias, x.stride(0), width),
        BIAS=bias is not None,
        BLOCK=_BLOCK,
        num_warps=4,
    )
    return x
