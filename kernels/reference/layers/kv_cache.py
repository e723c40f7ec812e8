"""Writing keys and values into the paged cache.

A cache tensor is [num_blocks, block_size, num_kv_heads, head_dim]; a slot is `block * block_size + offset`.
"""

from torch import Tensor


def write_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """Copies each token's key and value to its slot.

    Args:
        k, v: [num_tokens, num_kv_heads, head_dim].
        k_cache, v_cache: [num_blocks, block_size, num_kv_heads, head_dim], written in place.
        slots: [num_tokens] int64; a token with a negative slot is skipped. No two tokens share a slot.
    """
    kept = (slots >= 0).nonzero().squeeze(1)
    if kept.numel() < slots.numel():
        k, v, slots = k[kept], v[kept], slots[kept]
    k_cache.view(-1, *k.shape[1:]).index_copy_(0, slots, k.to(k_cache.dtype))
    v_cache.view(-1, *v.shape[1:]).index_copy_(0, slots, v.to(v_cache.dtype))
