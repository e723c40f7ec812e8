"""Rotary position embedding of queries and keys together."""

from typing import NamedTuple

import torch
from torch import Tensor

from .native import native_ops


class RopeRows(NamedTuple):
    """What a step's tokens are rotated by, the same for all layers: [num_tokens, 1, rot_dim] float32 each."""

    cos: Tensor
    sin: Tensor
    """Sines, negated in the first half."""


def gather_rope(cos_sin: Tensor, positions: Tensor) -> RopeRows:
    """The rows of a table [max_positions, rot_dim] (cosines, then sines) for positions [num_tokens]."""
    cos, sin = cos_sin.index_select(0, positions).unsqueeze(1).chunk(2, dim=-1)
    return RopeRows(torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1))


def apply_rope(x: Tensor, rows: RopeRows) -> None:
    """Rotates the first rot_dim entries of heads [num_tokens, heads, head_dim] in place, in float32.

    The halves (x1, x2) become `(x1 * cos - x2 * sin, x2 * cos + x1 * sin)`.
    """
    if x.dtype == torch.bfloat16 and (kernel := native_ops()):
        return kernel.rotate(x, rows.cos, rows.sin)
    rot_dim = rows.cos.shape[-1]
    rotated = x if rot_dim == x.shape[-1] else x[..., :rot_dim]
    swapped = rotated.roll(rot_dim // 2, -1)
    # Products with the float32 table are float32, and only the sum is rounded to the heads' dtype.
    rotated.copy_(torch.addcmul(rotated * rows.cos, swapped, rows.sin))
