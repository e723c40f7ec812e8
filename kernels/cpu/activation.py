"""Gated activation."""

from torch import Tensor
from torch.nn.functional import silu


def silu_mul(x: Tensor) -> Tensor:
    """`silu(gate) * up` of [num_tokens, 2 * intermediate], the gate half first."""
    gate, up = x.chunk(2, dim=-1)
    return silu(gate).mul_(up)
