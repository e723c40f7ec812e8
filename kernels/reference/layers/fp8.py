"""Linear layers in 8-bit floating point: float8_e4m3fn, one scale a weight and one a token.

A product leaves its tokens' scales out, since the library's form with a scale of the whole tensor is the fast
one. What reads its result applies them on the way: the rotation, the activation, the residual add.

Source: Micikevicius et al. 2022, "FP8 formats for deep learning".
"""

import torch
from torch import Tensor
from torch.nn.functional import silu

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


def fp8_product(
    x: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """Returns `x @ (weight * weight_scale)^T`, [T, N]: what the tokens' scales are yet to be applied to.

    Args:
        x: [T, K] float8_e4m3fn.
        weight: [N, K] float8_e4m3fn. weight_scale: [1] float32.
        out: written and returned when given.
        dtype: of the result when `out` is not given; its range must be that of float32.
    """
    result = (x.float() @ weight.float().t()) * weight_scale
    return result.to(dtype) if out is None else out.copy_(result)


def scale_tokens(x: Tensor, scale: Tensor, *, bias: Tensor | None = None) -> Tensor:
    """Multiplies each token of x [T, N] by its scale [T], in place, adds `bias` [N] and returns x."""
    scaled = x.float() * scale.unsqueeze(1)
    return x.copy_(scaled if bias is None else scaled + bias.float())


def quantize_rms_norm(
    x: Tensor,
    weight: Tensor,
    eps: float,
    *,
    residual: Tensor | None = None,
    x_scale: Tensor | None = None,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """`quantize_tokens` of the norm of x, or of the residual, which x is added to in place.

    Args:
        x: [T, hidden].
        weight: [hidden].
        residual: [T, hidden].
        x_scale: [T] float32, a factor of each token of x.
    """
    total = x.float() if x_scale is None else x.float() * x_scale.unsqueeze(1)
    if residual is not None:
        total = residual.copy_(residual.float() + total).float()
    normed = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + eps) * weight.float()
    return quantize_tokens(normed, out=out)


def quantize_silu_mul(
    x: Tensor, *, x_scale: Tensor | None = None, out: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """`quantize_tokens` of `silu(gate) * up`, [T, intermediate].

    Args:
        x: [T, 2 * intermediate], the gate half first.
        x_scale: [T] float32, a factor of each token of x.
    """
    gate, up = (x.float() if x_scale is None else x.float() * x_scale.unsqueeze(1)).chunk(2, dim=-1)
    return quantize_tokens(silu(gate) * up, out=out)
