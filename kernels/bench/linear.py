"""The one-token linear layer against the library's, and 8-bit products."""

from collections.abc import Callable, Iterator
from itertools import product

import torch
from torch import Tensor

from .. import device as kernels
from ..device.layers.gemv import GemvConfig, gemv_config
from ..reference import quantize_weight
from .timing import Case

_SHAPES = {
    "8B qkv": (6144, 4096, {"norm": True}),
    "8B o": (4096, 4096, {"residual": True}),
    "8B gate_up": (28672, 4096, {"norm": True, "swiglu": True}),
    "8B down": (4096, 14336, {"residual": True}),
    "8B lm_head": (128256, 4096, {"norm": True}),
    "0.6B qkv": (4096, 1024, {"norm": True}),
    "0.6B o": (1024, 2048, {"residual": True}),
    "0.6B gate_up": (6144, 1024, {"norm": True, "swiglu": True}),
    "0.6B down": (1024, 3072, {"residual": True}),
    "0.6B lm_head": (151936, 1024, {"norm": True}),
}
_TILED = ("8B qkv", "8B o", "8B gate_up", "8B down")
_HELD = (8 << 10, 64 << 10)  # bytes of weights in a program that are worth a try


def _data(*shape: int) -> Tensor:
    return (torch.randn(shape, device="cuda") * shape[-1] ** -0.5).bfloat16()


def _gemv(
    rows: int, width: int, form: dict[str, bool], *, config: GemvConfig | None, pdl: bool, fp8: bool
) -> Callable[[], object]:
    x, weight = _data(1, width), _data(rows, width)
    swiglu = form.get("swiglu", False)
    norm = _data(width) if form.get("norm") else None
    out = _data(1, rows // (2 if swiglu else 1))
    residual = out if form.get("residual") else None
    scale = None
    if fp8:
        weight, scale = quantize_weight(weight)
    return lambda: kernels.gemv(
        x, weight, norm_weight=norm, weight_scale=scale, swiglu=swiglu, residual=residual,
        out=None if residual is not None else out, config=config, pdl=pdl,
    )  # fmt: skip


def _gemv_case(name: str, *, config: GemvConfig | None = None, pdl: bool = True, fp8: bool = False) -> Case:
    rows, width, form = _SHAPES[name]
    used = config or gemv_config(rows, width, 1 if fp8 else 2)
    label = f"gemv {name} {'fp8 ' * fp8}{'pdl ' * pdl}{tuple(used)}"
    num_bytes = rows * width * (1 if fp8 else 2)
    return Case(label, lambda: _gemv(rows, width, form, config=used, pdl=pdl, fp8=fp8), num_bytes)


def _library(num_tokens: int, rows: int, width: int) -> Callable[[], object]:
    x, weight, out = _data(num_tokens, width), _data(rows, width), _data(num_tokens, rows)
    return lambda: torch.mm(x, weight.t(), out=out)


def _fp8(num_tokens: int, rows: int, width: int, *, fast: bool) -> Callable[[], object]:
    x, _ = kernels.quantize_tokens(_data(num_tokens, width))
    weight, scale = quantize_weight(_data(rows, width))
    out, one = _data(num_tokens, rows), torch.ones(1, device="cuda")
    return lambda: kernels.fp8_product(x, weight, scale, out=out, one=one, fast_accumulation=fast)


def linear_cases() -> Iterator[Case]:
    """Weights of Llama-3.1-8B and Qwen3-0.6B."""
    for name in _SHAPES:
        yield _gemv_case(name, pdl=False)
        yield _gemv_case(name)
        yield _gemv_case(name, fp8=True)
    for name, n in product(_TILED, (8, 64, 256, 2048)):
        rows, width, _ = _SHAPES[name]
        shape = (n, rows, width)
        flops, size = 2 * n * rows * width, rows * width + n * (width + 2 * rows)
        moved = 2 * (rows * width + n * (rows + width))
        yield Case(f"torch.mm {name} {n}", lambda s=shape: _library(*s), moved, flops)
        for fast in (True, False):
            label = f"fp8_product {name} {n}{', exact sums' * (not fast)}"
            # The rate of 8-bit products is twice that of 16 bits.
            yield Case(label, lambda s=shape, f=fast: _fp8(*s, fast=f), size, flops // 2)


def tile_cases() -> Iterator[Case]:
    """Launch figures of the one-token layer, for the weights of Llama-3.1-8B."""
    for name, fp8 in product(_TILED, (True, False)):
        _, width, form = _SHAPES[name]
        for rows, tile, warps in product((1, 2, 4, 8), (2048, 4096), (4, 8)):
            held = rows * tile * (1 if fp8 else 2) * (2 if form.get("swiglu") else 1)
            per_thread = held // (32 * warps)
            if width % tile == 0 and _HELD[0] <= held <= _HELD[1] and 32 <= per_thread <= 256:
                yield _gemv_case(name, config=GemvConfig(rows, tile, warps), fp8=fp8)
