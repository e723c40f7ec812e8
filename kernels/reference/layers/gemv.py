"""A linear layer of one token, with what stands around it."""

from torch import Tensor, float32

from .activation import silu_mul
from .norm import rms_norm


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
) -> Tensor:
    """Returns `weight @ norm(x) + bias`, [1, N], computed in float32; behind it SwiGLU or a residual add.

    Args:
        x: [1, K].
        weight: [N, K], or [2 * N, K] with swiglu, the gate half first; may be float8_e4m3fn.
        norm_weight: [K], puts an RMSNorm with `eps` in front.
        weight_scale: [1] float32, what the weight is multiplied by.
        bias: [rows of weight].
        swiglu: returns silu(gate) * up.
        residual: [1, N], the result is added to it in place and it is returned; not with swiglu.
        out: written and returned when given; not with residual.
    """
    wide = x.to(float32)
    if norm_weight is not None:
        wide = rms_norm(wide, norm_weight, eps)
    result = wide @ weight.to(float32).t()
    if weight_scale is not None:
        result = result * weight_scale
    if bias is not None:
        result = result + bias.to(float32)
    if swiglu:
        result = silu_mul(result)
    if residual is not None:
        return residual.copy_(residual.to(float32) + result)
    return result.to(x.dtype) if out is None else out.copy_(result)
