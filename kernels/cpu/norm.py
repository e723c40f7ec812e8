"""RMSNorm in six or seven operator calls."""

from functools import lru_cache

import torch
from torch import Tensor
from torch.linalg import vector_norm


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Returns `x / sqrt(mean(x^2) + eps) * weight` over the last dimension, computed in float32.

    The result has the weight's dtype.

    Args:
        x: [..., hidden].
        weight: [hidden].
    """
    wide = x.to(torch.float32)
    norm = vector_norm(wide, 2, -1, True)
    scale = torch.addcmul(_scalar(eps), norm, norm, value=1 / x.shape[-1]).rsqrt_()
    return (scale * weight).mul_(wide).to(weight.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Adds `x` to `residual` in place and returns the norm of the sum."""
    return rms_norm(residual.add_(x), weight, eps)


@lru_cache
def _scalar(value: float) -> Tensor:
    return torch.tensor(value)
