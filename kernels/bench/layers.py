"""Norms, activations, rotation with the cache write, and what builds a step."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from .. import device as kernels
from ..reference import PlanColumns, StepInputs
from .timing import Case

_HIDDEN, _INTERMEDIATE, _HEADS, _KV_HEADS, _HEAD_DIM = 4096, 14336, 32, 8, 128


def _data(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda").bfloat16()


def _norm(num_tokens: int) -> Callable[[], object]:
    x, residual, weight = _data(num_tokens, _HIDDEN), _data(num_tokens, _HIDDEN), _data(_HIDDEN)
    out = torch.empty_like(x)
    return lambda: kernels.add_rms_norm(x, residual, weight, 1e-5, out=out)


def _quantize(num_tokens: int, width: int) -> Callable[[], object]:
    x = _data(num_tokens, width)
    out = kernels.quantize_tokens(x)
    return lambda: kernels.quantize_tokens(x, out=out)


def _quantized_norm(num_tokens: int) -> Callable[[], object]:
    x, residual, weight = _data(num_tokens, _HIDDEN), _data(num_tokens, _HIDDEN), _data(_HIDDEN)
    out = kernels.quantize_tokens(x)
    scale = torch.ones(num_tokens, device="cuda")
    return lambda: kernels.quantize_rms_norm(x, weight, 1e-5, residual=residual, x_scale=scale, out=out)


def _quantized_activation(num_tokens: int) -> Callable[[], object]:
    x = _data(num_tokens, 2 * _INTERMEDIATE)
    out = kernels.quantize_silu_mul(x)
    scale = torch.ones(num_tokens, device="cuda")
    return lambda: kernels.quantize_silu_mul(x, x_scale=scale, out=out)


def _activation(num_tokens: int) -> Callable[[], object]:
    x, out = _data(num_tokens, 2 * _INTERMEDIATE), _data(num_tokens, _INTERMEDIATE)
    return lambda: kernels.silu_mul(x, out=out)


def _rope(num_tokens: int) -> Callable[[], object]:
    fused = _data(num_tokens, _HEADS + 2 * _KV_HEADS, _HEAD_DIM)
    q, k, v = fused.split([_HEADS, _KV_HEADS, _KV_HEADS], dim=1)
    caches = [_data(num_tokens // 64 + 1, 64, _KV_HEADS, _HEAD_DIM) for _ in range(2)]
    slots = torch.randperm(num_tokens, device="cuda")
    cos_sin = torch.randn(8192, _HEAD_DIM, device="cuda")
    weight = _data(_HEAD_DIM)
    return lambda: kernels.rope_and_write_kv(
        q, k, v, slots, cos_sin, *caches, slots, q_weight=weight, k_weight=weight
    )


def _inputs(num_rows: int) -> Callable[[], object]:
    def ints(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device="cuda")

    row = torch.arange(num_rows, dtype=torch.int32, device="cuda")
    starts = torch.arange(num_rows + 1, dtype=torch.int32, device="cuda")
    plan = PlanColumns(row, row + 100, starts, torch.full_like(row, -1), row, ints(1, dtype=torch.int32))
    inputs = StepInputs(
        *(ints(num_rows), ints(num_rows), ints(1, num_rows), ints(num_rows, dtype=torch.int32)),
        *(ints(num_rows) for _ in range(4)),
    )
    tables = ints(1, num_rows, 128, dtype=torch.int32)
    last_token = ints(num_rows, dtype=torch.int32)
    return lambda: kernels.build_step_inputs(plan, last_token, tables, inputs, block_size=64)


def _diff(count: int) -> Callable[[], object]:
    state = torch.zeros(1 << 20, dtype=torch.int32, device="cuda")
    diff = torch.randint(0, 1 << 20, (1 + 2 * count,), dtype=torch.int32, device="cuda")
    diff[0] = count
    return lambda: kernels.apply_diff(state, diff)


def layer_cases() -> Iterator[Case]:
    """Shapes of Llama-3.1-8B."""
    token = (_HEADS + _KV_HEADS) * _HEAD_DIM
    for n in (1, 256, 8192):
        yield Case(f"add_rms_norm {n} x {_HIDDEN}", lambda n=n: _norm(n), 2 * 4 * n * _HIDDEN)
        yield Case(f"silu_mul {n} x {_INTERMEDIATE}", lambda n=n: _activation(n), 2 * 3 * n * _INTERMEDIATE)
        yield Case(f"quantize_tokens {n} x {_HIDDEN}", lambda n=n: _quantize(n, _HIDDEN), 3 * n * _HIDDEN)
        yield Case(f"quantize_rms_norm {n} x {_HIDDEN}", lambda n=n: _quantized_norm(n), 7 * n * _HIDDEN)
        moved = 5 * n * _INTERMEDIATE
        yield Case(f"quantize_silu_mul {n} x {_INTERMEDIATE}", lambda n=n: _quantized_activation(n), moved)
        moved = 2 * 2 * n * (token + _KV_HEADS * _HEAD_DIM) + 4 * n * _HEAD_DIM
        yield Case(f"rope_and_write_kv with q/k norm, {n} tokens", lambda n=n: _rope(n), moved)
    for n in (1, 256):
        yield Case(f"build_step_inputs {n} decodes", lambda n=n: _inputs(n))
    yield Case("apply_diff 2000 words", lambda: _diff(2000))
