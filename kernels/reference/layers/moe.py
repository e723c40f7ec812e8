"""Mixture of experts: a router sends each token to a few of many gated feed-forward layers."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from .activation import silu_mul


class Routes(NamedTuple):
    """Where tokens go."""

    experts: Tensor
    """[num_tokens, top_k] int64, no expert twice in a line."""
    weights: Tensor
    """[num_tokens, top_k] float32, the greatest first."""


def route(logits: Tensor, *, top_k: int, renormalize: bool) -> Routes:
    """The `top_k` experts of greatest probability for each token.

    Args:
        logits: [num_tokens, num_experts] of the router.
        renormalize: whether the weights of a token's experts sum to 1; they are plain probabilities without.

    Source: Shazeer et al. 2017, "Outrageously large neural networks"; Jiang et al. 2024, "Mixtral".
    """
    weights, experts = logits.float().softmax(-1).topk(top_k, dim=-1)
    if renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    return Routes(experts, weights)


def mix_experts(x: Tensor, routes: Routes, gate_up: Tensor, down: Tensor) -> Tensor:
    """The weighted sum of each token's experts, [num_tokens, hidden]: every expert computes every token.

    Args:
        x: [num_tokens, hidden].
        gate_up: [num_experts, 2 * intermediate, hidden], the gate half first.
        down: [num_experts, hidden, intermediate].
    """
    out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for expert, (rise, fall) in enumerate(zip(gate_up, down, strict=True)):
        share = (routes.weights * (routes.experts == expert)).sum(-1, keepdim=True)
        out += share * linear(silu_mul(linear(x, rise)), fall).float()
    return out.to(x.dtype)
