"""The work plan of a step's attention, built on the device from the rows' lengths.

A captured graph has fixed grids while lengths change at every replay. So a grid has one place for every piece
of work there can be, and this kernel, run once a step for all layers that share a window, says what is in it:

    decode items   (row, split): a part of the context of a row with one query
    prompt tiles   (row, tile): some queries of a row with several

Long contexts are cut so that about `target` items result, whatever the batch; places left over hold row -1.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..checks import check, check_shape

LOG2_E = 1.4426950408889634
"""Scores are kept in units of log2(e), so that the hardware's exp2 serves."""
WINDOW_ALIGN = 64
"""Contexts cut by a window begin at a multiple of this: a tile of keys must not straddle blocks."""
_CTAS_WANTED = 528
"""Decode programs that fill the device: four for each of an H200's 132 multiprocessors."""
_TARGET_ALONE = 32
"""Items of a lone row: enough to hide latency, few enough to merge quickly."""
_PROMPT_TILE_ROWS = 64
"""Query rows of a prompt tile: tokens x padded heads per KV head."""


class AttentionPlan(NamedTuple):
    """A plan's tensors, and the figures they were sized by."""

    item_row: Tensor
    """[max_items] int32, the row of each decode item, -1 for an empty place."""
    item_split: Tensor
    """[max_items] int32, which part of the row's context it is."""
    first_item: Tensor
    """[max_rows + 1] int32, where each row's items begin."""
    chunk: Tensor
    """[1] int32, tokens of context in an item."""
    tile_row: Tensor
    """[max_tiles] int32, the row of each prompt tile, -1 for an empty place."""
    tile_index: Tensor
    """[max_tiles] int32, which part of the row's queries it is."""
    num_tiles: Tensor
    """[1] int32."""
    partial: Tensor
    """[max_items, num_kv_heads, group, head_dim] float32, results of single items."""
    partial_lse: Tensor
    """[max_items, num_kv_heads, group] float32, log2 of their softmax denominators."""
    arrivals: Tensor
    """[max_rows, num_kv_heads] int32, items of a row that are done; 0 between launches."""
    target: int
    """Decode items aimed at when there are many rows."""
    tile_tokens: int
    """Queries of a prompt tile."""

    def num_items(self, num_rows: int) -> int:
        """Places for decode items in a launch for that many rows."""
        return num_rows + self.target_for(num_rows)

    def target_for(self, num_rows: int) -> int:
        """Decode items aimed at for that many rows."""
        return min(self.target, _TARGET_ALONE) if num_rows == 1 else self.target

    def max_tiles(self, num_tokens: int, num_rows: int) -> int:
        """Places for prompt tiles in a launch for that many tokens and rows."""
        return num_tokens // self.tile_tokens + num_rows


def make_attention_plan(
    max_rows: int,
    max_tokens: int,
    *,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    device: torch.device | str,
) -> AttentionPlan:
    """Allocates a plan for steps of at most so many rows and tokens; layers and steps may share it."""
    group = triton.next_power_of_2(num_heads // num_kv_heads)
    target = max(_CTAS_WANTED // num_kv_heads, 1)
    tile_tokens = max(_PROMPT_TILE_ROWS // group, 1)
    max_items = target + max_rows
    max_tiles = max_tokens // tile_tokens + max_rows

    def ints(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.int32, device=device)

    def floats(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float32, device=device)

    return AttentionPlan(
        item_row=ints(max_items),
        item_split=ints(max_items),
        first_item=ints(max_rows + 1),
        chunk=ints(1),
        tile_row=ints(max_tiles),
        tile_index=ints(max_tiles),
        num_tiles=ints(1),
        partial=floats(max_items, num_kv_heads, group, head_dim),
        partial_lse=floats(max_items, num_kv_heads, group),
        arrivals=ints(max_rows, num_kv_heads),
        target=target,
        tile_tokens=tile_tokens,
    )


@triton.jit
def _scatter(counts, row_ptr, index_ptr, num_places, PLACES: tl.constexpr):
    """Writes (row, index in the row) for `counts` [ROWS] pieces of work, then -1 up to num_places."""
    end = tl.cumsum(counts, axis=0)
    first = end - counts
    total = tl.sum(counts, axis=0)
    for start in range(0, num_places, PLACES):
        place = start + tl.arange(0, PLACES)
        row = tl.sum((end[None, :] <= place[:, None]).to(tl.int32), axis=1)
        # Of the rows that begin at or before a place, the last one with any work is its row.
        row_first = tl.max(tl.where(first[None, :] <= place[:, None], first[None, :], 0), axis=1)
        inside = place < num_places
        tl.store(row_ptr + place, tl.where(place < total, row, -1), mask=inside)
        tl.store(index_ptr + place, place - row_first, mask=inside)


@triton.jit(do_not_specialize=["num_rows", "num_items", "num_tiles", "target", "unit"])
def _plan_kernel(
    query_start_ptr,
    seq_lens_ptr,
    item_row_ptr,
    item_split_ptr,
    first_item_ptr,
    chunk_ptr,
    tile_row_ptr,
    tile_index_ptr,
    num_tiles_ptr,
    num_rows,
    num_items,
    num_tiles,
    target,
    unit,
    WINDOW: tl.constexpr,
    ALIGN: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    PLACES: tl.constexpr,
):
    """Cuts contexts and prompts into work.

    Grid (2,): program 0 plans the decode items, program 1 the prompt tiles. A row's context is counted in
    units of `unit` tokens; an item takes c = max(1, ceil(total / target)) of them, so there are at most
    target + num_rows items.
    """
    row = tl.arange(0, ROWS)
    inside = row < num_rows
    start = tl.load(query_start_ptr + row, mask=inside, other=0)
    num_queries = tl.load(query_start_ptr + row + 1, mask=inside, other=0) - start
    if tl.program_id(0) == 0:
        length = tl.load(seq_lens_ptr + row, mask=inside, other=0)
        if WINDOW > 0:
            length -= tl.maximum(length - WINDOW, 0) // ALIGN * ALIGN
        units = tl.where(num_queries == 1, (length + unit - 1) // unit, 0)
        units_per_item = tl.maximum((tl.sum(units, axis=0) + target - 1) // target, 1)
        splits = (units + units_per_item - 1) // units_per_item
        end = tl.cumsum(splits, axis=0)
        tl.store(first_item_ptr + row, end - splits, mask=inside)
        tl.store(first_item_ptr + num_rows, tl.sum(splits, axis=0))
        tl.store(chunk_ptr, units_per_item * unit)
        _scatter(splits, item_row_ptr, item_split_ptr, num_items, PLACES)
    else:
        tiles = tl.where(num_queries > 1, (num_queries + TILE_TOKENS - 1) // TILE_TOKENS, 0)
        tl.store(num_tiles_ptr, tl.sum(tiles, axis=0))
        _scatter(tiles, tile_row_ptr, tile_index_ptr, num_tiles, PLACES)


def plan_attention(
    plan: AttentionPlan,
    query_start: Tensor,
    seq_lens: Tensor,
    *,
    num_tokens: int,
    window: int | None = None,
    min_chunk: int | None = None,
) -> None:
    """Fills `plan` for a step. Arguments as in `paged_attention`.

    Args:
        num_tokens: tokens of the step, padding included; sizes the launch, not the plan.
        min_chunk: tokens of context below which a row is not split, a multiple of 64. By default 64 for few
            rows, where latency counts, and 512 for many, where merging costs more than it gains.
    """
    num_rows = seq_lens.shape[0]
    check("query_start", query_start, dim=1, dtype=torch.int32)
    check("seq_lens", seq_lens, dim=1, dtype=torch.int32)
    check_shape("query_start", query_start, (num_rows + 1,))
    if min_chunk is None:
        min_chunk = 64 if num_rows < 16 else 512
    rows_block = max(triton.next_power_of_2(num_rows), 16)
    _plan_kernel[(2,)](
        query_start,
        seq_lens,
        plan.item_row,
        plan.item_split,
        plan.first_item,
        plan.chunk,
        plan.tile_row,
        plan.tile_index,
        plan.num_tiles,
        num_rows,
        plan.num_items(num_rows),
        plan.max_tiles(num_tokens, num_rows),
        plan.target_for(num_rows),
        min_chunk,
        WINDOW=window or 0,
        ALIGN=WINDOW_ALIGN,
        TILE_TOKENS=plan.tile_tokens,
        ROWS=rows_block,
        PLACES=max(8192 // rows_block, 16),
        num_warps=8,
    )
