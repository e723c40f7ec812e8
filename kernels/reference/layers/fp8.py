"""Linear layers in 8-bit floating point: float8_e4m3fn, one scale a weight and one a token.

Source: Micikevicius et al. 2022, "FP8 formats for deep learning".
"""

import torch
from torch import Tensor

FP8_MAX = 448.0
"""The largest number of float8_e4m3fn."""
_SMALLEST_SCALE = 1e-12


def quantize_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the weight [N, K] as float8_e4m3fn and its scale [1] float32: weight = quantized * scale."""
    scale = (weight.abs().amax().float() / FP8_MAX).clamp(min=_SMALLEST_SCALE).view(1)
    return (weight.float() / scale).to(torch.float8_e4m3fn), scale


def quantize_tokens(x: Tensor, *, out: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Returns x [T, K] as float8_e4m3fn and a scale for each token, [T] float32.

    A scale belongs to its token, so that no result depends on the rest of a batch or on padding.

    Args:
        out: both results, written and returned when given.
    """
    scale = (x.float().abs().amax(-1) / FP8_MAX).clamp(min=_SMALLEST_SCALE)
    quantized = (x.float() / scale.unsqueeze(1)).to(torch.float8_e4m3fn)
    if out is None:
        return quantized, scale
    return out[0].copy_(quantized), out[1].copy_(scale)


def fp8_linear(
    x: Tensor,
    x_scale: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """Returns `(x * x_scale) @ (weight * weight_scale)^T`, [T, N].

    Args:
        x: [T, K] float8_e4m3fn. x_scale: [T] float32.
        weight: [N, K] float8_e4m3fn. weight_scale: [1] float32.
        out: written and returned when given.
        dtype: of the result when `out` is not given.
    """
    result = (x.float() @ weight.float().t()) * x_scale.unsqueeze(1) * weight_scale
    return result.to(dtype) if out is None else out.copy_(result)
