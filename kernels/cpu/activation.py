"""Gated activations."""

from torch import Tensor
from torch.nn.functional import gelu, silu


def silu_mul(x: Tensor) -> Tensor:
    """`silu(gate) * up` of [num_tokens, 2 * intermediate], the gate half first."""
    gate, up = x.chunk(2, dim=-1)
    return silu(gate).mul_(up)


def gelu_tanh_mul(x: Tensor) -> Tensor:
    """`gelu(gate) * up` with the tanh form of gelu; as in `silu_mul`."""
    gate, up = x.chunk(2, dim=-1)
    return gelu(gate, approximate="tanh").mul_(up)
