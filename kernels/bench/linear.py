"""The one-token linear layer against the library's, and 8-bit products."""

from collections.abc import Callable, Iterator

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


def _library(num_tokens: int, rows: int, width: int) -> Callable[[], object]:
    x, weight, out = _data(num_tokens, width), _data(rows, width), _data(num_tokens, rows)
    return lambda: torch.mm(x, weight.t(), out=out)


def _fp8(num_tokens: int, rows: int, width: int) -> Callable[[], object]:
    x, scale = kernels.quantize_tokens(_data(num_tokens, width))
    weight, weight_scale = quantize_weight(_data(rows, width))
    out, one = _data(num_tokens, rows), torch.ones(1, device="cuda")
    return lambda: kernels.fp8_linear(x, scale, weight, weight_scale, out=out, one=one)


def _quantize(num_tokens: int, width: int) -> Callable[[], object]:
    x = _data(num_tokens, width)
    out = kernels.quantize_tokens(x)
    return lambda: kernels.quantize_tokens(x, out=out)


def _others(best: GemvConfig) -> list[GemvConfig]:
    """Launch figures near the chosen ones."""
    changes = [(0.5, 1, 1), (2, 1, 1), (1, 1, 0.5), (1, 0.5, 1), (2, 0.5, 1)]
    found = {
        GemvConfig(max(int(best.rows * r), 1), max(int(best.tile * t), 128), max(int(best.warps * w), 1))
        for r, t, w in changes
    }
    return sorted(found - {best})


def linear_cases() -> Iterator[Case]:
    """Weights of Llama-3.1-8B and Qwen3-0.6B."""
    for name, (rows, width, form) in _SHAPES.items():
        size = 2 * rows * width

        def case(text: str, num_bytes: int, *, config=None, pdl=False, fp8=False, shape=(rows, width, form)):  # type: ignore[no-untyped-def]
            return Case(text, lambda: _gemv(*shape, config=config, pdl=pdl, fp8=fp8), num_bytes)

        best = gemv_config(rows // (2 if form.get("swiglu") else 1), width)
        yield case(f"gemv {name} {tuple(best)}", size)
        yield case(f"gemv {name} pdl", size, pdl=True)
        yield case(f"gemv {name} fp8 pdl", size // 2, pdl=True, fp8=True)
        for config in _others(best):
            yield case(f"gemv {name} pdl {tuple(config)}", size, config=config, pdl=True)
    for name in ("8B qkv", "8B gate_up", "8B down"):
        rows, width, _ = _SHAPES[name]
        for n in (16, 256, 2048):
            shape = (n, rows, width)
            flops, size = 2 * n * rows * width, rows * width + n * (rows + width)
            yield Case(f"torch.mm {name} {n}", lambda s=shape: _library(*s), 2 * size, flops)
            yield Case(f"fp8_linear {name} {n}", lambda s=shape: _fp8(*s), size, flops // 2)
    for n in (1, 256, 8192):
        yield Case(f"quantize_tokens {n} x 4096", lambda n=n: _quantize(n, 4096), 3 * n * 4096)
