"""A linear layer of one token, with what stands around it, at the speed its weights can be read."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ..checks import check, check_same_device, check_shape, new_output
from ..launch import pdl_options
from .activation import silu

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class GemvConfig(NamedTuple):
    """Launch figures."""

    rows: int
    """Results of a program."""
    tile: int
    """Numbers of a weight row taken at once."""
    warps: int


def gemv_config(num_rows: int, width: int, num_bytes: int = 2) -> GemvConfig:
    """What measured best for a weight [num_rows, width] of numbers of so many bytes.

    Many rows: whole rows in registers, up to 4096 numbers. Few rows: smaller programs, so that every
    multiprocessor has several. Narrow numbers: more of them, since bytes on their way are what counts.
    """
    power = width & -width
    tile = min(power, 4096) if power >= 512 else min(triton.next_power_of_2(width), 1024)
    if num_bytes == 1 and tile >= 2048:
        return GemvConfig(4, tile, 8)
    held = (32_768 if num_rows >= 32_768 else 16_384) // max(num_bytes, 2)
    if num_rows >= 16_384:
        return GemvConfig(min(max(held // tile, 1), 16), tile, 8)
    if tile <= 1024:
        return GemvConfig(min(held // tile, 16), tile, 4)
    return GemvConfig(4 if width <= 4096 else 8, 2048, 8)


@triton.jit
def _load_rows(ptr, row, column, num_rows, width, stride, EVEN: tl.constexpr):
    """Weights [rows, tile]; each is read once, so it need not stay in the cache."""
    at = ptr + row.to(tl.int64)[:, None] * stride + column[None, :]
    mask = (row < num_rows)[:, None]
    if not EVEN:
        mask = mask & (column < width)[None, :]
    return tl.load(at, mask=mask, other=0.0, eviction_policy="evict_first")


@triton.jit
def _run_sums(a, b, RUN: tl.constexpr):
    """Sums [M, N // RUN] of RUN neighbours of a * b, for a [M, N] and b [1, N].

    A run is what a thread loads at once, so that adding it up needs no other thread, and no register for
    each product.
    """
    products = a.to(tl.float32) * b
    runs = tl.reshape(products, (products.shape[0], products.shape[1] // RUN, RUN))
    return tl.sum(runs, axis=2)


@triton.jit
def _gemv_kernel(
    x_ptr, norm_ptr, weight_ptr, scale_ptr, bias_ptr, out_ptr, num_rows, width, stride, eps,
    NORM: tl.constexpr, SWIGLU: tl.constexpr, RESIDUAL: tl.constexpr, BIAS: tl.constexpr,
    SCALED: tl.constexpr, EVEN: tl.constexpr, TILES: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr,
    RUN: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """y_n = sum_k w_nk x_k g_k / sqrt(mean(x^2) + eps), then silu(y_n) y_(n + N), or residual_n += y_n.

    Grid (ceil(num_rows / ROWS),). The scale of the norm is a factor of the sum, so one pass over x does. The
    first weights are requested before the kernel in front, which writes x, has ended.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, TILE)
    first = _load_rows(weight_ptr, row, column, num_rows, width, stride, EVEN)
    second = first
    up_ptr = weight_ptr + num_rows.to(tl.int64) * stride
    if SWIGLU:
        second = _load_rows(up_ptr, row, column, num_rows, width, stride, EVEN)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    sums = tl.zeros((ROWS, TILE // RUN), tl.float32)
    up_sums = tl.zeros((ROWS, TILE // RUN), tl.float32)
    squares = tl.zeros((TILE,), tl.float32)
    for tile in tl.static_range(TILES):
        k = tile * TILE + column
        if tile > 0:
            first = _load_rows(weight_ptr, row, k, num_rows, width, stride, EVEN)
            if SWIGLU:
                second = _load_rows(up_ptr, row, k, num_rows, width, stride, EVEN)
        x = tl.load(x_ptr + k, mask=k < width, other=0.0).to(tl.float32)
        if NORM:
            squares += x * x
            x = x * tl.load(norm_ptr + k, mask=k < width, other=0.0).to(tl.float32)
        sums += _run_sums(first, x[None, :], RUN)
        if SWIGLU:
            up_sums += _run_sums(second, x[None, :], RUN)
    factor = 1.0
    if NORM:
        factor = tl.rsqrt(tl.sum(squares, axis=0) / width + eps)
    if SCALED:
        factor = factor * tl.load(scale_ptr)
    inside = row < num_rows
    result = tl.sum(sums, axis=1) * factor
    if BIAS:
        result += tl.load(bias_ptr + row, mask=inside, other=0.0).to(tl.float32)
    if SWIGLU:
        up = tl.sum(up_sums, axis=1) * factor
        if BIAS:
            up += tl.load(bias_ptr + num_rows + row, mask=inside, other=0.0).to(tl.float32)
        result = silu(result) * up
    if RESIDUAL:
        result += tl.load(out_ptr + row, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, result.to(out_ptr.dtype.element_ty), mask=inside)


def gemv(
    x: Tensor,
    weight: Tensor,
    *,
    norm_weight: Tensor | None = None,
    eps: float = 1e-6,
    weight_scale: Tensor | None = None,
    bias: Tensor | None = None,
    swiglu: bool = False,
    residual: Tensor | None = None,
    out: Tensor | None = None,
    config: GemvConfig | None = None,
    pdl: bool = False,
) -> Tensor:
    """See `reference.gemv`. `pdl`: the launches before and after are kernels that wait before they read."""
    width = x.shape[1]
    num_rows = weight.shape[0] // (2 if swiglu else 1)
    check("x", x, dim=2, dtype=_FLOATS)
    check_shape("x", x, (1, width))
    check("weight", weight, dim=2, dtype=(*_FLOATS, torch.float8_e4m3fn))
    check_shape("weight", weight, (weight.shape[0], width))
    for name, tensor, shape in (
        ("norm_weight", norm_weight, (width,)),
        ("weight_scale", weight_scale, (1,)),
        ("bias", bias, (weight.shape[0],)),
        ("residual", residual, (1, num_rows)),
    ):
        if tensor is not None:
            check(name, tensor)
            check_shape(name, tensor, shape)
    if residual is not None and (swiglu or out is not None):
        raise ValueError("residual must not be given together with swiglu or out")
    out = residual if residual is not None else out
    if out is None:
        out = new_output("out", (1, num_rows), x)
    check_shape("out", out, (1, num_rows))
    check_same_device(x=x, weight=weight, norm_weight=norm_weight, bias=bias, out=out)
    config = config or gemv_config(weight.shape[0], width, weight.element_size())
    _gemv_kernel[(triton.cdiv(num_rows, config.rows),)](
        x,
        *(x if tensor is None else tensor for tensor in (norm_weight, weight, weight_scale, bias)),
        out,
        *(num_rows, width, weight.stride(0), eps),
        NORM=norm_weight is not None,
        SWIGLU=swiglu,
        RESIDUAL=residual is not None,
        BIAS=bias is not None,
        SCALED=weight_scale is not None,
        EVEN=width % config.tile == 0,
        TILES=triton.cdiv(width, config.tile),
        TILE=config.tile,
        ROWS=config.rows,
        RUN=16 // weight.element_size() if width % 16 == 0 else 1,
        PDL=pdl,
        num_warps=config.warps,
        **pdl_options(pdl),
    )
    return out
