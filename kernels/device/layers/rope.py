"""Rotary position embedding: alone, and fused with q/k norm in front and the KV write behind."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ..checks import check, check_same_device, check_shape
from ..launch import pdl_options
from .kv_cache import check_cache

_HEADS_PER_PROGRAM = 8


@triton.jit
def _rotated_heads(
    x_ptr, weight_ptr, factor, cos, sin, head, heads_inside, head_stride, eps,
    HEAD_DIM: tl.constexpr, HALF: tl.constexpr, HALF_BLOCK: tl.constexpr, REST_BLOCK: tl.constexpr,
    NORM: tl.constexpr,
):  # fmt: skip
    """The two rotated halves [heads, HALF_BLOCK] and the unrotated rest of some heads of one token, float32.

    A thread loads both entries of a pair and stores both, so rotation in place has no hazard between threads.
    """
    column = tl.arange(0, HALF_BLOCK)
    inside = heads_inside[:, None] & (column < HALF)[None, :]
    at = x_ptr + head[:, None] * head_stride + column[None, :]
    x1 = tl.load(at, mask=inside, other=0.0).to(tl.float32) * factor
    x2 = tl.load(at + HALF, mask=inside, other=0.0).to(tl.float32) * factor
    rest_column = 2 * HALF + tl.arange(0, REST_BLOCK)
    rest_inside = heads_inside[:, None] & (rest_column < HEAD_DIM)[None, :]
    rest_at = x_ptr + head[:, None] * head_stride + rest_column[None, :]
    if 2 * HALF < HEAD_DIM:
        rest = tl.load(rest_at, mask=rest_inside, other=0.0).to(tl.float32) * factor
    else:
        rest = tl.zeros((x1.shape[0], REST_BLOCK), tl.float32)
    if NORM:
        square = tl.sum(x1 * x1, axis=1) + tl.sum(x2 * x2, axis=1) + tl.sum(rest * rest, axis=1)
        scale = tl.rsqrt(square / HEAD_DIM + eps)[:, None]
        weight1 = tl.load(weight_ptr + column, mask=column < HALF, other=0.0).to(tl.float32)
        weight2 = tl.load(weight_ptr + HALF + column, mask=column < HALF, other=0.0).to(tl.float32)
        x1 = x1 * scale * weight1[None, :]
        x2 = x2 * scale * weight2[None, :]
        if 2 * HALF < HEAD_DIM:
            weight = tl.load(weight_ptr + rest_column, mask=rest_column < HEAD_DIM, other=0.0)
            rest = rest * scale * weight.to(tl.float32)[None, :]
    return x1 * cos - x2 * sin, x2 * cos + x1 * sin, rest


@triton.jit
def _store_heads(
    out_ptr, first, second, rest, head, heads_inside, head_stride,
    HEAD_DIM: tl.constexpr, HALF: tl.constexpr, HALF_BLOCK: tl.constexpr, REST_BLOCK: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, HALF_BLOCK)
    inside = heads_inside[:, None] & (column < HALF)[None, :]
    dtype = out_ptr.dtype.element_ty
    at = out_ptr + head[:, None] * head_stride + column[None, :]
    tl.store(at, first.to(dtype), mask=inside)
    tl.store(at + HALF, second.to(dtype), mask=inside)
    if 2 * HALF < HEAD_DIM:
        rest_column = 2 * HALF + tl.arange(0, REST_BLOCK)
        rest_inside = heads_inside[:, None] & (rest_column < HEAD_DIM)[None, :]
        tl.store(
            out_ptr + head[:, None] * head_stride + rest_column[None, :], rest.to(dtype), mask=rest_inside
        )


@triton.jit
def _copy_heads(
    x_ptr, out_ptr, factor, head, head_stride,
    NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, DIM_BLOCK: tl.constexpr,
):  # fmt: skip
    """Copies some heads of one token, times `factor`, to adjacent places."""
    column = tl.arange(0, DIM_BLOCK)
    inside = (head < NUM_HEADS)[:, None] & (column < HEAD_DIM)[None, :]
    x = tl.load(x_ptr + head[:, None] * head_stride + column[None, :], mask=inside).to(tl.float32) * factor
    tl.store(
        out_ptr + head[:, None] * HEAD_DIM + column[None, :], x.to(out_ptr.dtype.element_ty), mask=inside
    )


@triton.jit
def _rope_kernel(
    q_ptr, k_ptr, v_ptr, positions_ptr, cos_sin_ptr, k_cache_ptr, v_cache_ptr, slots_ptr,
    q_weight_ptr, k_weight_ptr, scale_ptr,
    q_stride, q_head_stride, k_stride, k_head_stride, v_stride, v_head_stride, slot_stride, eps,
    NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HALF: tl.constexpr,
    HALF_BLOCK: tl.constexpr, REST_BLOCK: tl.constexpr, DIM_BLOCK: tl.constexpr, HEADS: tl.constexpr,
    NORM: tl.constexpr, WRITE: tl.constexpr, SCALED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Rotates HEADS heads of one token, all of q or all of k, or copies as many heads of v.

    Grid (num_tokens, q parts + k parts [+ v parts]). With WRITE, k and v go to the token's cache slot and
    stay as they are; without it, q and k are rotated in place. NORM puts an RMSNorm over each head in front,
    SCALED multiplies all by the token's factor first.
    """
    token = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    q_parts: tl.constexpr = (NUM_HEADS + HEADS - 1) // HEADS
    kv_parts: tl.constexpr = (NUM_KV_HEADS + HEADS - 1) // HEADS
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    factor = tl.load(scale_ptr + token) if SCALED else 1.0
    slot = tl.load(slots_ptr + token) if WRITE else tl.zeros((), tl.int64)
    if part >= q_parts + kv_parts:
        if slot >= 0:
            _copy_heads(
                v_ptr + token * v_stride, v_cache_ptr + slot * slot_stride, factor,
                (part - q_parts - kv_parts) * HEADS + tl.arange(0, HEADS), v_head_stride,
                NUM_KV_HEADS, HEAD_DIM, DIM_BLOCK,
            )  # fmt: skip
    else:
        position = tl.load(positions_ptr + token)
        column = tl.arange(0, HALF_BLOCK)
        at = cos_sin_ptr + position * (2 * HALF) + column
        cos = tl.load(at, mask=column < HALF, other=0.0)[None, :]
        sin = tl.load(at + HALF, mask=column < HALF, other=0.0)[None, :]
        if part < q_parts:
            head = part * HEADS + tl.arange(0, HEADS)
            inside = head < NUM_HEADS
            base = q_ptr + token * q_stride
            first, second, rest = _rotated_heads(
                base, q_weight_ptr, factor, cos, sin, head, inside, q_head_stride, eps,
                HEAD_DIM, HALF, HALF_BLOCK, REST_BLOCK, NORM,
            )  # fmt: skip
            _store_heads(
                base, first, second, rest, head, inside, q_head_stride, HEAD_DIM, HALF, HALF_BLOCK, REST_BLOCK
            )
        elif slot >= 0:
            head = (part - q_parts) * HEADS + tl.arange(0, HEADS)
            inside = head < NUM_KV_HEADS
            base = k_ptr + token * k_stride
            first, second, rest = _rotated_heads(
                base, k_weight_ptr, factor, cos, sin, head, inside, k_head_stride, eps,
                HEAD_DIM, HALF, HALF_BLOCK, REST_BLOCK, NORM,
            )  # fmt: skip
            target = k_cache_ptr + slot * slot_stride if WRITE else base
            head_stride = HEAD_DIM if WRITE else k_head_stride
            _store_heads(
                target, first, second, rest, head, inside, head_stride, HEAD_DIM, HALF, HALF_BLOCK, REST_BLOCK
            )


def apply_rope(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    """See `reference.apply_rope`."""
    _launch(q, k, None, positions, cos_sin, None, None, None, None, None, None, 0.0, False)


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
    pdl: bool = False,
) -> None:
    """See `reference.rope_and_write_kv`. q, k and v may be slices of one fused projection.

    `pdl`: the launches before and after are kernels that wait before they read.
    """
    check_cache(k_cache, v_cache)
    check("v", v, dim=3)
    check_shape("v", v, tuple(k.shape))
    check("slots", slots, dim=1, dtype=torch.int64)
    check_shape("k_cache", k_cache, (*k_cache.shape[:2], *k.shape[1:]))
    if (q_weight is None) != (k_weight is None):
        raise ValueError("q_weight and k_weight must be given together")
    _launch(q, k, v, positions, cos_sin, k_cache, v_cache, slots, q_weight, k_weight, scale, eps, pdl)


def _launch(
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    positions: Tensor,
    cos_sin: Tensor,
    k_cache: Tensor | None,
    v_cache: Tensor | None,
    slots: Tensor | None,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    scale: Tensor | None,
    eps: float,
    pdl: bool,
) -> None:
    """Without v, rotates q and k in place; pointers that the kernel's variant does not read get k."""
    check("q", q, dim=3)
    check("k", k, dim=3, dtype=q.dtype)
    check("positions", positions, dim=1, dtype=torch.int64)
    check("cos_sin", cos_sin, dim=2, dtype=torch.float32, contiguous=True)
    num_tokens, num_heads, head_dim = q.shape
    num_kv_heads = k.shape[1]
    check_shape("k", k, (num_tokens, num_kv_heads, head_dim))
    check_shape("positions", positions, (num_tokens,))
    for name, given, size in (
        ("q_weight", q_weight, head_dim), ("k_weight", k_weight, head_dim), ("scale", scale, num_tokens)
    ):  # fmt: skip
        if given is not None:
            check_shape(name, given, (size,))
    check_same_device(
        q=q, k=k, v=v, positions=positions, cos_sin=cos_sin, k_cache=k_cache, v_cache=v_cache, slots=slots
    )
    half = cos_sin.shape[1] // 2
    heads = _HEADS_PER_PROGRAM
    kv_parts = triton.cdiv(num_kv_heads, heads)
    parts = triton.cdiv(num_heads, heads) + (kv_parts if v is None else 2 * kv_parts)
    _rope_kernel[(num_tokens, parts)](
        *(q, k, k if v is None else v, positions, cos_sin),
        *(k if k_cache is None else k_cache, k if v_cache is None else v_cache),
        positions if slots is None else slots,
        *(k if tensor is None else tensor for tensor in (q_weight, k_weight, scale)),
        *(q.stride(0), q.stride(1), k.stride(0), k.stride(1)),
        *((0, 0) if v is None else (v.stride(0), v.stride(1))),
        0 if k_cache is None else k_cache.stride(1),
        eps,
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        HALF=half,
        HALF_BLOCK=triton.next_power_of_2(half),
        REST_BLOCK=triton.next_power_of_2(max(head_dim - 2 * half, 1)),
        DIM_BLOCK=triton.next_power_of_2(head_dim),
        HEADS=heads,
        NORM=q_weight is not None,
        WRITE=v is not None,
        SCALED=scale is not None,
        PDL=pdl,
        num_warps=4,
        **pdl_options(pdl),
    )
