"""RMSNorm in six operator calls."""

import torch
from torch import Tensor
from torch.linalg import vector_norm


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Returns `x / sqrt(mean(x^2) + eps) * weight` over the last dimension, computed in float32.

    Args:
        x: [..., hidden].
        weight: [hidden].
    """
    wide = x.to(torch.float32)
    scale = vector_norm(wide, 2, -1, True).square_().mul_(1 / x.shape[-1]).add_(eps).rsqrt_()
    return (wide * scale).mul_(weight).to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Adds `x` to `residual` in place and returns the norm of the sum."""
    return rms_norm(residual.add_(x), weight, eps)
