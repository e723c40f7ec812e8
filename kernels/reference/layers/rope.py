"""Rotary position embedding."""

from torch import Tensor, float32

from .kv_cache import write_kv
from .norm import rms_norm


def apply_rope(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    """Rotates `q` and `k` in place, computed in float32.

    The first `rot_dim` entries of a head form two halves (x1, x2) and become
    `(x1 * cos - x2 * sin, x2 * cos + x1 * sin)`; entries from `rot_dim` on stay as they are.

    Args:
        q: [num_tokens, num_heads, head_dim].
        k: [num_tokens, num_kv_heads, head_dim].
        positions: [num_tokens] int64, each below max_positions.
        cos_sin: [max_positions, rot_dim] float32, cosines of the rot_dim / 2 frequencies, then sines.

    Source: Su et al. 2021, "RoFormer", in the half-split arrangement of GPT-NeoX.
    """
    cos, sin = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)
    half = cos.shape[-1]
    for x in (q, k):
        x1 = x[..., :half].to(float32)
        x2 = x[..., half : 2 * half].to(float32)
        # Both products are complete before the first store: x1 and x2 alias x when x is float32.
        rotated1 = x1 * cos - x2 * sin
        rotated2 = x2 * cos + x1 * sin
        x[..., :half] = rotated1
        x[..., half : 2 * half] = rotated2


def rope_and_write_kv(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    cos_sin: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slots: Tensor,
    *,
    q_weight: Tensor | None = None,
    k_weight: Tensor | None = None,
    eps: float = 1e-6,
    scale: Tensor | None = None,
) -> None:
    """Rotates `q` in place, and writes the rotated `k` and `v` to the cache; k and v stay as they are.

    With weights, each head of q and k first goes through an RMSNorm over its dimension, all in float32.

    Args:
        q, k, v: [num_tokens, num_heads or num_kv_heads, head_dim].
        positions, cos_sin: as in `apply_rope`.
        k_cache, v_cache, slots: as in `write_kv`.
        q_weight, k_weight: [head_dim], both or none.
        scale: [num_tokens] float32, a factor of each token's q, k and v that comes before all else.
    """
    wide_q, wide_k = q.to(float32, copy=True), k.to(float32, copy=True)
    if scale is not None:
        factor = scale[:, None, None]
        wide_q, wide_k, v = wide_q * factor, wide_k * factor, v.to(float32) * factor
    if q_weight is not None and k_weight is not None:
        wide_q, wide_k = rms_norm(wide_q, q_weight, eps), rms_norm(wide_k, k_weight, eps)
    apply_rope(wide_q, wide_k, positions, cos_sin)
    q.copy_(wide_q)
    write_kv(wide_k, v, k_cache, v_cache, slots)
