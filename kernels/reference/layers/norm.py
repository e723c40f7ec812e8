"""Root-mean-square normalization, with and without the residual add in front."""

from torch import Tensor, float32, rsqrt


def rms_norm(x: Tensor, weight: Tensor, eps: float, *, out: Tensor | None = None) -> Tensor:
    """Returns `x / sqrt(mean(x^2) + eps) * weight` over the last dimension, computed in float32.

    The result has the weight's dtype; a residual stream may be wider.

    Args:
        x: [num_tokens, hidden]; further leading dimensions are allowed (q/k norm: [num_tokens, heads, dim]).
        weight: [hidden].
        out: written and returned when given; may be `x` itself.

    Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization".
    """
    wide = x.to(float32)
    scale = rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    normed = (wide * scale).mul_(weight.to(float32)).to(weight.dtype)
    return normed if out is None else out.copy_(normed)


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, *, out: Tensor | None = None
) -> Tensor:
    """Adds `x` to `residual` in place and returns the norm of the sum.

    The norm reads the sum as it was rounded to the residual's dtype, so that a layer's result is the same
    whether the add is fused or not.

    Args:
        x: [num_tokens, hidden].
        residual: [num_tokens, hidden], updated in place.
        weight: [hidden].
        out: written and returned when given; may be `x` itself.
    """
    residual.copy_(residual.to(float32) + x.to(float32))
    return rms_norm(residual, weight, eps, out=out)
