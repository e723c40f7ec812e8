"""RMSNorm in six or seven operator calls, or one native."""

from functools import lru_cache

import torch
from torch import Tensor
from torch.linalg import vector_norm

from .native import Native, native_ops


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Returns `x / sqrt(mean(x^2) + eps) * weight` over the last dimension, computed in float32.

    The result has the weight's dtype.

    Args:
        x: [..., hidden].
        weight: [hidden].
    """
    if kernel := _fitting(x, weight):
        return kernel.add_rms_norm(None, x, weight, eps)
    wide = x.to(torch.float32)
    norm = vector_norm(wide, 2, -1, True)
    scale = torch.addcmul(_scalar(eps), norm, norm, value=1 / x.shape[-1]).rsqrt_()
    return (scale * weight).mul_(wide).to(weight.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Adds `x` to `residual` in place and returns the norm of the sum."""
    if x.dtype == torch.bfloat16 and (kernel := _fitting(residual, weight)):
        return kernel.add_rms_norm(x.contiguous(), residual, weight, eps)
    return rms_norm(residual.add_(x), weight, eps)


def _fitting(x: Tensor, weight: Tensor) -> Native | None:
    """The native form, for a residual stream of a bfloat16 model."""
    stream = x.dtype == torch.float32 and weight.dtype == torch.bfloat16 and x.dim() == 2
    return native_ops() if stream and x.is_contiguous() else None


@lru_cache
def _scalar(value: float) -> Tensor:
    return torch.tensor(value)
