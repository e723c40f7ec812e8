"""Attention of rows with several queries: prompt chunks, with or without a cached prefix."""

import triton
import triton.language as tl
from torch import Tensor

from .plan import LOG2_E, WINDOW_ALIGN, AttentionPlan
from .tiles import load_tile, online_step, soft_limit, table_of


@triton.jit
def _attend_range(
    acc, best, total, q, k_ptr, v_ptr, table_ptr,
    query_position, from_position, to_position, seen_from, seen_to, scale, slot_stride, head_offset,
    HEAD_DIM: tl.constexpr, DIM_BLOCK: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
    WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, PRECISION: tl.constexpr, MASKED: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Adds the keys at [from_position, to_position) to the running softmax of the queries.

    Without MASKED every query sees all of them; with it, each sees those up to its own position and inside
    its window, and only [seen_from, seen_to) is read.
    """
    for start in tl.range(from_position, to_position, TILE, num_stages=STAGES):
        k, v = load_tile(
            k_ptr, v_ptr, table_ptr, start, seen_from, seen_to, slot_stride, head_offset,
            HEAD_DIM, DIM_BLOCK, BLOCK_SIZE, TILE, MASKED,
        )  # fmt: skip
        scores = tl.dot(q, tl.trans(k.to(q.dtype)), input_precision=PRECISION) * scale
        if SOFTCAP > 0:
            scores = soft_limit(scores, SOFTCAP)
        if MASKED:
            position = start + tl.arange(0, TILE)
            visible = position[None, :] <= query_position[:, None]
            if WINDOW > 0:
                visible = visible & (position[None, :] > query_position[:, None] - WINDOW)
            scores = tl.where(visible, scores, float("-inf"))
        acc, best, total = online_step(acc, best, total, scores, v.to(q.dtype), PRECISION)
    return acc, best, total


@triton.jit
def _prompt_attention_kernel(
    q_ptr, k_ptr, v_ptr, tables_ptr, rows_ptr, query_start_ptr, seq_lens_ptr,
    tile_row_ptr, tile_index_ptr, num_tiles_ptr, out_ptr,
    scale, q_stride, out_stride, slot_stride, table_stride,
    GROUP: tl.constexpr, GROUP_PAD: tl.constexpr, TILE_TOKENS: tl.constexpr,
    HEAD_DIM: tl.constexpr, DIM_BLOCK: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
    WINDOW: tl.constexpr, ALIGN: tl.constexpr, SOFTCAP: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr, HAS_ROWS: tl.constexpr,
):  # fmt: skip
    """Causal softmax(scale q K^T) V of TILE_TOKENS queries, times the GROUP heads that share a KV head.

    Grid (num_kv_heads, tiles), the planned tiles in reverse: late queries of a prompt see the most keys, and
    work that begins last should be short. Line i of a program's matrix is query i // GROUP_PAD, head
    i % GROUP_PAD of the group, so that a tile's keys are read once for all of them. Keys that all queries see
    go through a loop without masks, those around the diagonal through one with. `scale` includes log2(e).
    Source: Dao 2023, "FlashAttention-2".
    """
    place = tl.load(num_tiles_ptr) - 1 - tl.program_id(1)
    if place < 0:
        return
    head = tl.program_id(0)
    row = tl.load(tile_row_ptr + place)
    first_query = tl.load(tile_index_ptr + place) * TILE_TOKENS
    length = tl.load(seq_lens_ptr + row)
    query_start = tl.load(query_start_ptr + row)
    num_queries = tl.load(query_start_ptr + row + 1) - query_start
    table_ptr = table_of(tables_ptr, rows_ptr, row, table_stride, HAS_ROWS)

    line = tl.arange(0, TILE_TOKENS * GROUP_PAD)
    query, member = first_query + line // GROUP_PAD, line % GROUP_PAD
    dim = tl.arange(0, DIM_BLOCK)
    inside = ((query < num_queries) & (member < GROUP))[:, None] & (dim < HEAD_DIM)[None, :]
    token = (query_start + query).to(tl.int64)
    in_token = (head * GROUP + member)[:, None] * HEAD_DIM + dim[None, :]
    q = tl.load(q_ptr + token[:, None] * q_stride + in_token, mask=inside, other=0.0)

    cached = length - num_queries
    end = tl.minimum(cached + first_query + TILE_TOKENS, length)
    acc = tl.zeros((TILE_TOKENS * GROUP_PAD, DIM_BLOCK), tl.float32)
    best = tl.full((TILE_TOKENS * GROUP_PAD,), float("-inf"), tl.float32)
    total = tl.zeros((TILE_TOKENS * GROUP_PAD,), tl.float32)
    seen_from = 0
    if WINDOW > 0:
        seen_from = tl.maximum(cached + first_query - WINDOW + 1, 0)
        diagonal = seen_from // ALIGN * ALIGN
    else:
        diagonal = (cached + first_query + 1) // TILE * TILE
        acc, best, total = _attend_range(
            acc, best, total, q, k_ptr, v_ptr, table_ptr, cached + query, 0, diagonal, 0, diagonal,
            scale, slot_stride, head * HEAD_DIM,
            HEAD_DIM, DIM_BLOCK, BLOCK_SIZE, TILE, WINDOW, SOFTCAP, PRECISION, False, STAGES,
        )  # fmt: skip
    acc, best, total = _attend_range(
        acc, best, total, q, k_ptr, v_ptr, table_ptr, cached + query, diagonal, end, seen_from, end,
        scale, slot_stride, head * HEAD_DIM,
        HEAD_DIM, DIM_BLOCK, BLOCK_SIZE, TILE, WINDOW, SOFTCAP, PRECISION, True, STAGES,
    )  # fmt: skip
    # Lines of padding may have seen nothing.
    acc = acc / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(out_ptr + token[:, None] * out_stride + in_token, acc.to(out_ptr.dtype.element_ty), mask=inside)


def launch_prompts(
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
) -> None:
    """Runs the rows with several queries; `paged_attention` has checked the arguments."""
    num_tokens, num_heads, head_dim = q.shape
    block_size, num_kv_heads = k_cache.shape[1:3]
    group = num_heads // num_kv_heads
    _prompt_attention_kernel[(num_kv_heads, plan.max_tiles(num_tokens, seq_lens.shape[0]))](
        *(q, k_cache, v_cache, block_tables, seq_lens if rows is None else rows, query_start, seq_lens),
        *(plan.tile_row, plan.tile_index, plan.num_tiles, out),
        scale * LOG2_E,
        *(q.stride(0), out.stride(0), k_cache.stride(1), block_tables.stride(0)),
        GROUP=group,
        GROUP_PAD=triton.next_power_of_2(group),
        TILE_TOKENS=plan.tile_tokens,
        HEAD_DIM=head_dim,
        DIM_BLOCK=triton.next_power_of_2(head_dim),
        BLOCK_SIZE=block_size,
        TILE=64,
        WINDOW=window,
        ALIGN=WINDOW_ALIGN,
        SOFTCAP=softcap,
        PRECISION=precision,
        STAGES=3,
        HAS_ROWS=rows is not None,
        num_warps=4,
    )
