"""Gated activations of feed-forward layers: act(gate) * up over a fused [gate | up] projection."""

from torch import Tensor, float32
from torch.nn.functional import gelu, silu


def silu_mul(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns `silu(gate) * up` with shape [num_tokens, intermediate], computed in float32.

    Args:
        x: [num_tokens, 2 * intermediate], the gate half first.
        out: [num_tokens, intermediate], written and returned when given.

    Source: Shazeer 2020, "GLU Variants Improve Transformer" (SwiGLU).
    """
    gate, up = x.to(float32).chunk(2, dim=-1)
    result = silu(gate).mul_(up).to(x.dtype)
    return result if out is None else out.copy_(result)


def gelu_tanh_mul(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns `gelu(gate) * up` with the tanh form of gelu; shapes as in `silu_mul`.

    Source: Shazeer 2020 (GEGLU); Hendrycks and Gimpel 2016 for the tanh form.
    """
    gate, up = x.to(float32).chunk(2, dim=-1)
    result = gelu(gate, approximate="tanh").mul_(up).to(x.dtype)
    return result if out is None else out.copy_(result)
