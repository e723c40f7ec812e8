"""Attention whose scores are capped: torch's fused operator has no such option."""

import torch
from torch import Tensor


def capped_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    mask: Tensor | None,
    is_causal: bool,
    scale: float,
    softcap: float,
) -> Tensor:
    """Softmax of `softcap * tanh(scale * q k^T / softcap)` times values, in float32; [..., n, head_dim].

    Args:
        q: [..., n, head_dim].
        keys, values: [..., L, head_dim].
        mask: broadcasts to [..., n, L]: bool, or what is added to the scores.
        is_causal: query i sees keys up to i, where n = L and there is no mask.
    """
    scores = (q.float() @ keys.float().transpose(-1, -2)).mul_(scale / softcap).tanh_().mul_(softcap)
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril_()
    if mask is not None and mask.dtype == torch.bool:
        scores.masked_fill_(~mask, float("-inf"))
    elif mask is not None:
        scores.add_(mask)
    return (scores.softmax(-1) @ values.float()).to(q.dtype)
