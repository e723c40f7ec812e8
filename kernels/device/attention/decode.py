"""Attention of rows with one query: contexts split over programs, the last one of a row merges."""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ..launch import pdl_options
from .plan import LOG2_E, WINDOW_ALIGN, AttentionPlan
from .tiles import load_tile, online_step, soft_limit, table_of


class DecodeConfig(NamedTuple):
    """Launch figures of the decode kernel."""

    tile: int
    """Positions taken at once."""
    warps: int
    stages: int
    """Depth of the load pipeline."""


def decode_config(block_size: int) -> DecodeConfig:
    """What measured best: a tile of a whole block where blocks are long, one warp and short tiles else."""
    return DecodeConfig(64, 2, 2) if block_size % 64 == 0 else DecodeConfig(32, 1, 5)


@triton.jit
def _merge(
    partial_ptr, lse_ptr, out_ptr, first_item, num_splits, head,
    NUM_KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_PAD: tl.constexpr, HEAD_DIM: tl.constexpr,
    DIM_BLOCK: tl.constexpr, SPLITS: tl.constexpr, MERGE: tl.constexpr,
):  # fmt: skip
    """out = sum_s 2^(lse_s - lse) partial_s over a row's items s, where 2^lse = sum_s 2^lse_s.

    The loads bypass L1, which is not coherent with what other programs wrote.
    """
    member = tl.arange(0, GROUP_PAD)
    dim = tl.arange(0, DIM_BLOCK)
    split = tl.arange(0, SPLITS)
    at = ((first_item + split) * NUM_KV_HEADS + head)[:, None] * GROUP_PAD + member[None, :]
    lse = tl.load(lse_ptr + at, mask=(split < num_splits)[:, None], other=float("-inf"), cache_modifier=".cg")
    best = tl.max(lse, axis=0)
    total = tl.sum(tl.exp2(lse - best[None, :]), axis=0)
    acc = tl.zeros((GROUP_PAD, DIM_BLOCK), tl.float32)
    for start in range(0, num_splits, MERGE):
        some = start + tl.arange(0, MERGE)
        inside = some < num_splits
        place = ((first_item + some) * NUM_KV_HEADS + head)[:, None] * GROUP_PAD + member[None, :]
        some_lse = tl.load(lse_ptr + place, mask=inside[:, None], other=float("-inf"), cache_modifier=".cg")
        weights = tl.exp2(some_lse - best[None, :])
        partial_at = partial_ptr + place.to(tl.int64)[:, :, None] * HEAD_DIM + dim[None, None, :]
        mask = inside[:, None, None] & (dim < HEAD_DIM)[None, None, :]
        partial = tl.load(partial_at, mask=mask, other=0.0, cache_modifier=".cg")
        acc += tl.sum(partial * weights[:, :, None], axis=0)
    acc = acc / total[:, None]
    out_at = out_ptr + member[:, None] * HEAD_DIM + dim[None, :]
    out_mask = (member < GROUP)[:, None] & (dim < HEAD_DIM)[None, :]
    tl.store(out_at, acc.to(out_ptr.dtype.element_ty), mask=out_mask)


@triton.jit
def _attend_part(
    q_ptr, k_ptr, v_ptr, table_ptr, visible, begin, end, scale, slot_stride, head_offset,
    GROUP: tl.constexpr, GROUP_ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, DIM_BLOCK: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr, SOFTCAP: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Attention of one query's heads over the positions [begin, end), of which those from `visible` on count:
    the normalized sum [GROUP_ROWS, DIM_BLOCK], the largest score and the sum of weights [GROUP_ROWS]."""
    member = tl.arange(0, GROUP_ROWS)
    dim = tl.arange(0, DIM_BLOCK)
    at = q_ptr + member[:, None] * HEAD_DIM + dim[None, :]
    q = tl.load(at, mask=(member < GROUP)[:, None] & (dim < HEAD_DIM)[None, :], other=0.0)
    acc = tl.zeros((GROUP_ROWS, DIM_BLOCK), tl.float32)
    best = tl.full((GROUP_ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((GROUP_ROWS,), tl.float32)
    for start in tl.range(begin, end, TILE, num_stages=STAGES):
        k, v = load_tile(
            k_ptr, v_ptr, table_ptr, start, visible, end, slot_stride, head_offset,
            HEAD_DIM, DIM_BLOCK, BLOCK_SIZE, TILE, True,
        )  # fmt: skip
        scores = tl.dot(q, tl.trans(k.to(q.dtype)), input_precision=PRECISION) * scale
        if SOFTCAP > 0:
            scores = soft_limit(scores, SOFTCAP)
        position = start + tl.arange(0, TILE)
        scores = tl.where(((position >= visible) & (position < end))[None, :], scores, float("-inf"))
        acc, best, total = online_step(acc, best, total, scores, v.to(q.dtype), PRECISION)
    return acc / total[:, None], best, total


@triton.jit
def _span(split, chunk, length, WINDOW: tl.constexpr, ALIGN: tl.constexpr):
    """First visible position of a context, and where a split of it begins and ends."""
    visible = 0
    if WINDOW > 0:
        visible = tl.maximum(length - WINDOW, 0)
    begin = visible // ALIGN * ALIGN + split * chunk
    return visible, begin, tl.minimum(begin + chunk, length)


@triton.jit
def _decode_attention_kernel(
    q_ptr, k_ptr, v_ptr, tables_ptr, rows_ptr, query_start_ptr, seq_lens_ptr,
    item_row_ptr, item_split_ptr, first_item_ptr, chunk_ptr, partial_ptr, lse_ptr, arrivals_ptr, out_ptr,
    scale, q_stride, out_stride, slot_stride, table_stride,
    NUM_KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_PAD: tl.constexpr, GROUP_ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr, DIM_BLOCK: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
    WINDOW: tl.constexpr, ALIGN: tl.constexpr, SOFTCAP: tl.constexpr, PRECISION: tl.constexpr,
    SPLITS: tl.constexpr, MERGE: tl.constexpr, STAGES: tl.constexpr, HAS_ROWS: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """softmax(scale q K^T) V of one query's GROUP heads over a part of its context.

    Grid (num_kv_heads, items). The heads that share a KV head are the GROUP_ROWS (at least 16) rows of a
    matrix product; rows past GROUP are padding. `scale` includes log2(e). A row cut into several items leaves
    its parts in `partial`; the program that arrives last merges them, which needs no second launch.
    """
    head = tl.program_id(0)
    item = tl.program_id(1)
    row = tl.load(item_row_ptr + item)
    if PDL:
        gdc_launch_dependents()
    if row < 0:
        if PDL:
            gdc_wait()  # the kernel behind takes this one's end for the end of all before it
        return
    first_item = tl.load(first_item_ptr + row)
    num_splits = tl.load(first_item_ptr + row + 1) - first_item
    in_token = head * GROUP * HEAD_DIM
    token = tl.load(query_start_ptr + row).to(tl.int64)
    table_ptr = table_of(tables_ptr, rows_ptr, row, table_stride, HAS_ROWS)
    split, length = tl.load(item_split_ptr + item), tl.load(seq_lens_ptr + row)
    visible, begin, end = _span(split, tl.load(chunk_ptr), length, WINDOW, ALIGN)
    if PDL:
        gdc_wait()
    acc, best, total = _attend_part(
        q_ptr + token * q_stride + in_token, k_ptr, v_ptr, table_ptr, visible, begin, end,
        scale, slot_stride, head * HEAD_DIM, GROUP, GROUP_ROWS, HEAD_DIM, DIM_BLOCK, BLOCK_SIZE, TILE,
        SOFTCAP, PRECISION, STAGES,
    )  # fmt: skip
    member = tl.arange(0, GROUP_ROWS)
    dim = tl.arange(0, DIM_BLOCK)
    inside = (member < GROUP)[:, None] & (dim < HEAD_DIM)[None, :]
    out_at = out_ptr + token * out_stride + in_token
    if num_splits == 1:
        whole = out_at + member[:, None] * HEAD_DIM + dim[None, :]
        tl.store(whole, acc.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        place = (item * NUM_KV_HEADS + head) * GROUP_PAD + member
        part = partial_ptr + place.to(tl.int64)[:, None] * HEAD_DIM + dim[None, :]
        tl.store(part, acc, mask=inside)
        tl.store(lse_ptr + place, best + tl.log2(total), mask=member < GROUP)
        # All threads' stores come before the arrival, and the arrival before the last program's loads.
        tl.debug_barrier()
        arrivals_ptr += row * NUM_KV_HEADS + head
        if tl.atomic_add(arrivals_ptr, 1, sem="acq_rel") == num_splits - 1:
            tl.store(arrivals_ptr, 0)
            _merge(
                partial_ptr, lse_ptr, out_at, first_item, num_splits, head,
                NUM_KV_HEADS, GROUP, GROUP_PAD, HEAD_DIM, DIM_BLOCK, SPLITS, MERGE,
            )  # fmt: skip


def launch_decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    rows: Tensor | None,
    query_start: Tensor,
    seq_lens: Tensor,
    out: Tensor,
    plan: AttentionPlan,
    *,
    scale: float,
    window: int,
    softcap: float,
    precision: str,
    pdl: bool,
    config: DecodeConfig,
) -> None:
    """Runs the rows with one query; `paged_attention` has checked the arguments."""
    num_rows, (num_heads, head_dim) = seq_lens.shape[0], q.shape[1:]
    block_size, num_kv_heads = k_cache.shape[1:3]
    group = num_heads // num_kv_heads
    group_pad, dim_block = triton.next_power_of_2(group), triton.next_power_of_2(head_dim)
    _decode_attention_kernel[(num_kv_heads, plan.num_items(num_rows))](
        *(q, k_cache, v_cache, block_tables, seq_lens if rows is None else rows, query_start, seq_lens),
        *(plan.item_row, plan.item_split, plan.first_item, plan.chunk),
        *(plan.partial, plan.partial_lse, plan.arrivals, out),
        scale * LOG2_E,
        *(q.stride(0), out.stride(0), k_cache.stride(1), block_tables.stride(0)),
        NUM_KV_HEADS=num_kv_heads,
        GROUP=group,
        GROUP_PAD=group_pad,
        GROUP_ROWS=max(group_pad, 16),
        HEAD_DIM=head_dim,
        DIM_BLOCK=dim_block,
        BLOCK_SIZE=block_size,
        TILE=config.tile,
        WINDOW=window,
        ALIGN=WINDOW_ALIGN,
        SOFTCAP=softcap,
        PRECISION=precision,
        SPLITS=triton.next_power_of_2(plan.target_for(num_rows) + 1),
        MERGE=max(4096 * config.warps // (group_pad * dim_block), 1),
        STAGES=config.stages,
        HAS_ROWS=rows is not None,
        PDL=pdl,
        num_warps=config.warps,
        **pdl_options(pdl),
    )
