"""Mixture of experts: tokens grouped by expert, and only experts that have tokens computed."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..reference.layers.moe import Routes, route
from .activation import silu_mul
from .linear import PackedLinear, linear

__all__ = ["Routes", "mix_experts", "route"]


def mix_experts(
    x: Tensor, routes: Routes, gate_up: Sequence[PackedLinear], down: Sequence[PackedLinear]
) -> Tensor:
    """The weighted sum of each token's experts, [num_tokens, hidden], summed in float32.

    Args:
        x: [num_tokens, hidden].
        gate_up, down: one packed weight for each expert, [2 * intermediate, hidden], [hidden, intermediate].
    """
    top_k = routes.experts.shape[1]
    order = routes.experts.view(-1).argsort(stable=True)
    tokens, weights = order // top_k, routes.weights.view(-1, 1).index_select(0, order)
    counts = routes.experts.view(-1).bincount(minlength=len(gate_up)).tolist()
    out = torch.zeros(x.shape, dtype=torch.float32)
    start = 0
    for expert, count in enumerate(counts):
        if not count:
            continue
        mine = slice(start, start + count)
        start += count
        inner = silu_mul(linear(x.index_select(0, tokens[mine]), gate_up[expert], None))
        result = linear(inner, down[expert], None)
        out.index_add_(0, tokens[mine], result.float().mul_(weights[mine]))
    return out.to(x.dtype)
