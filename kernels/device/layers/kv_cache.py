"""Writing keys and values into the paged cache."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..checks import check, check_same_device, check_shape


@triton.jit
def _write_kv_kernel(
    k_ptr,
    v_ptr,
    k_cache_ptr,
    v_cache_ptr,
    slots_ptr,
    k_stride,
    v_stride,
    slot_stride,
    width,
    BLOCK: tl.constexpr,
):
    """cache[slot] = token, for a token's num_kv_heads * head_dim = `width` adjacent numbers.

    Grid (num_tokens,). Slots of a block are `slot_stride` apart, and so are the blocks' first slots.
    """
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token)
    if slot < 0:
        return
    column = tl.arange(0, BLOCK)
    inside = column < width
    k = tl.load(k_ptr + token * k_stride + column, mask=inside)
    v = tl.load(v_ptr + token * v_stride + column, mask=inside)
    at = slot.to(tl.int64) * slot_stride + column
    tl.store(k_cache_ptr + at, k.to(k_cache_ptr.dtype.element_ty), mask=inside)
    tl.store(v_cache_ptr + at, v.to(v_cache_ptr.dtype.element_ty), mask=inside)


def write_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """See `reference.write_kv`. The heads of a token must be adjacent in k and v."""
    check_cache(k_cache, v_cache)
    num_kv_heads, head_dim = k_cache.shape[2:]
    width = num_kv_heads * head_dim
    for name, tensor in (("k", k), ("v", v)):
        check(name, tensor, dim=3)
        check_shape(name, tensor, (slots.shape[0], num_kv_heads, head_dim))
        if tensor.stride(1) != head_dim:
            raise ValueError(f"{name} must have adjacent heads, its strides are {tensor.stride()}")
    check("slots", slots, dim=1, dtype=torch.int64)
    check_same_device(k=k, v=v, k_cache=k_cache, v_cache=v_cache, slots=slots)
    block = triton.next_power_of_2(width)
    _write_kv_kernel[(k.shape[0],)](
        k,
        v,
        k_cache,
        v_cache,
        slots,
        k.stride(0),
        v.stride(0),
        k_cache.stride(1),
        width,
        BLOCK=block,
        num_warps=min(max(block // 256, 1), 8),
    )


def check_cache(k_cache: Tensor, v_cache: Tensor) -> None:
    """Raises ValueError unless both are [num_blocks, block_size, num_kv_heads, head_dim] of one layout, with
    a token's heads adjacent and a block's slots and the blocks at one distance."""
    check("k_cache", k_cache, dim=4)
    check("v_cache", v_cache, dim=4, dtype=k_cache.dtype)
    check_shape("v_cache", v_cache, tuple(k_cache.shape))
    _, block_size, _, head_dim = k_cache.shape
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        even = cache.stride(2) == head_dim and cache.stride(0) == block_size * cache.stride(1)
        if not even or cache.stride() != k_cache.stride():
            raise ValueError(f"{name} must have evenly spaced slots with adjacent heads, like the other")
