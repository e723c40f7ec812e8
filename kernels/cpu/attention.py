"""Attention over the paged cache with indexes and masks made once a step.

A layer's keys and values lie in one tensor [num_slots, 2, num_kv_heads, head_dim], so that one operator
writes both and one gathers both. Decode rows are attended from their blocks by the native operator; without
it, gathered, rows of similar length in one batch. Prompt chunks go one by one.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from .native import CHUNK, PagedDecodes, native_ops
from .softcap import capped_attention

# A batch of its own costs about as much as gathering so many slots more.
_BATCH_COST = 400
# Queries of one chunk attended at once: bounds the mask to this many times the context length.
_QUERY_CHUNK = 1024


class DecodeBatch(NamedTuple):
    """Rows of one query each."""

    queries: Tensor | None
    """[B] int64, where each row's query stands among the tokens; None when they are all tokens in order."""
    slots: Tensor | slice
    """[B * L] int64, or a slice where a single row's blocks lie one behind the other."""
    length: int
    """L."""
    mask: Tensor | None
    """[B, 1, 1, L] of the keys' dtype, -inf past a row's end."""


class PromptChunk(NamedTuple):
    """Queries of one row, all seeing the same slots under a mask."""

    first: int
    stop: int
    slots: Tensor | None
    """[L] int64; None when the row's whole context is in this chunk."""
    mask: Tensor | None
    """[num_queries, L] bool; None for plain causality over the chunk."""


class AttentionPlan(NamedTuple):
    """A step's attention, the same for all layers of a KV group."""

    paged: PagedDecodes | None
    """All rows of one query, for the native operator; without it they are in `decodes`."""
    decodes: list[DecodeBatch]
    prompts: list[PromptChunk]
    slots: Tensor
    """[num_tokens] int64, where the step's keys and values go."""


def plan_attention(
    block_tables: Tensor,
    first: list[int],
    num_tokens: list[int],
    seq_lens: list[int],
    slots: Tensor,
    *,
    block_size: int,
    dtype: torch.dtype,
    window: int = 0,
) -> AttentionPlan:
    """Plan a step of R rows.

    Args:
        block_tables: [R, max_blocks] int32.
        first: [R], where each row's tokens begin among the step's.
        num_tokens: [R], at least 1.
        seq_lens: [R], context lengths including this step's tokens.
        slots: [num_tokens] int64, where the step's keys and values go.
        dtype: of keys and values.
        window: a query at position p sees only positions above p - window; 0 is off.
    """
    singles = [row for row, count in enumerate(num_tokens) if count == 1]
    only_decodes = len(singles) == len(num_tokens)
    paged, decodes = None, []
    is_native = dtype == torch.bfloat16 and native_ops() is not None
    for batch in [singles] if is_native and singles else _batches(singles, seq_lens):
        tables = block_tables if only_decodes and batch == singles else block_tables[torch.tensor(batch)]
        lengths = [seq_lens[row] for row in batch]
        queries = (
            None if only_decodes and len(batch) == len(singles) else torch.tensor([first[r] for r in batch])
        )
        if is_native:
            paged = _plan_paged(tables, lengths, queries, block_size, window)
        else:
            decodes.append(_plan_decodes(tables, torch.tensor(lengths), queries, block_size, dtype, window))
    prompts: list[PromptChunk] = []
    for row, count in enumerate(num_tokens):
        if count > 1:
            positions = torch.arange(seq_lens[row])
            context = _slots_of(block_tables[row : row + 1], positions.unsqueeze(0), block_size)[0]
            prompts += _plan_prompt(first[row], count, context, window)
    return AttentionPlan(paged, decodes, prompts, slots)


def attend(
    q: Tensor, kv: Tensor, cache: Tensor, plan: AttentionPlan, scale: float, softcap: float = 0.0
) -> Tensor:
    """Write a step's keys and values to the cache and attend; returns [num_tokens, num_heads * head_dim].

    Args:
        q: [num_tokens, num_heads, head_dim], rotated.
        kv: [num_tokens, 2, num_kv_heads, head_dim], keys rotated.
        cache: [num_slots, 2, num_kv_heads, head_dim] of the layer, written in place.
        softcap: scores are `softcap * tanh(scores / softcap)` unless it is 0.
    """
    kernel = native_ops() if cache.dtype == torch.bfloat16 else None
    if kernel is not None:
        kernel.store(cache, plan.slots, kv)
    else:
        cache.index_copy_(0, plan.slots, kv)
    if len(plan.decodes) == 1 and plan.decodes[0].queries is None:
        return _attend_decodes(q, cache, plan.decodes[0], scale, softcap)
    out = q.new_empty(q.shape[0], q.shape[1] * q.shape[2])
    if plan.paged is not None and kernel is not None:
        kernel.attend(out, q, cache, plan.paged, scale, softcap)
    for batch in plan.decodes:
        assert batch.queries is not None
        part = q.index_select(0, batch.queries)
        out.index_copy_(0, batch.queries, _attend_decodes(part, cache, batch, scale, softcap))
    for chunk in plan.prompts:
        out[chunk.first : chunk.stop] = _attend_prompt(q, kv, cache, chunk, scale, softcap)
    return out


def _attend_decodes(q: Tensor, cache: Tensor, batch: DecodeBatch, scale: float, softcap: float) -> Tensor:
    num_rows, num_kv_heads, head_dim = q.shape[0], cache.shape[2], cache.shape[3]
    seen = cache[batch.slots] if isinstance(batch.slots, slice) else cache.index_select(0, batch.slots)
    seen = seen.view(num_rows, batch.length, 2, num_kv_heads, head_dim)
    keys, values = seen.permute(2, 0, 3, 1, 4).unbind(0)
    # The query heads that share a key head stand where the operator expects query positions.
    queries = q.view(num_rows, num_kv_heads, -1, head_dim)
    result = _attention(queries, keys, values, batch.mask, scale, softcap)
    return result.reshape(num_rows, -1)


def _attend_prompt(
    q: Tensor, kv: Tensor, cache: Tensor, chunk: PromptChunk, scale: float, softcap: float
) -> Tensor:
    num_kv_heads, head_dim = cache.shape[2], cache.shape[3]
    queries = q[chunk.first : chunk.stop].view(chunk.stop - chunk.first, num_kv_heads, -1, head_dim)
    seen = kv[chunk.first : chunk.stop] if chunk.slots is None else cache.index_select(0, chunk.slots)
    group = queries.shape[2]
    # Key heads stand in the batch dimension, each expanded without a copy to the query heads that share it.
    keys, values = (x.unsqueeze(1).expand(-1, group, -1, -1) for x in seen.permute(1, 2, 0, 3).unbind(0))
    is_causal = chunk.mask is None
    result = _attention(queries.permute(1, 2, 0, 3), keys, values, chunk.mask, scale, softcap, is_causal)
    return result.permute(2, 0, 1, 3).reshape(chunk.stop - chunk.first, -1)


def _attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scale: float,
    softcap: float,
    is_causal: bool = False,
) -> Tensor:
    if softcap:
        return capped_attention(q, keys, values, mask=mask, is_causal=is_causal, scale=scale, softcap=softcap)
    return scaled_dot_product_attention(q, keys, values, attn_mask=mask, is_causal=is_causal, scale=scale)


def _batches(rows: list[int], seq_lens: list[int]) -> list[list[int]]:
    """Rows in batches of similar length, such that padding costs less than a further batch would."""
    ordered = sorted(rows, key=lambda row: -seq_lens[row])
    batches: list[list[int]] = []
    for place, row in enumerate(ordered):
        longest = seq_lens[batches[-1][0]] if batches else 0
        if not batches or (longest - seq_lens[row]) * (len(ordered) - place) > _BATCH_COST:
            batches.append([])
        batches[-1].append(row)
    return [sorted(batch) for batch in batches] if len(batches) > 1 else [rows] if rows else []


def _plan_decodes(
    tables: Tensor,
    seq_lens: Tensor,
    queries: Tensor | None,
    block_size: int,
    dtype: torch.dtype,
    window: int,
) -> DecodeBatch:
    begin = (seq_lens - window).clamp_(min=0) if window else torch.zeros_like(seq_lens)
    visible = seq_lens - begin
    index = torch.arange(int(visible.max())).unsqueeze(0)
    # Repeating the last slot keeps stale slots, which may hold NaN, out of the masked positions.
    positions = torch.minimum(begin.unsqueeze(1) + index, seq_lens.unsqueeze(1) - 1)
    slots = _slots_of(tables, positions, block_size)
    length = slots.shape[1]
    if len(slots) == 1 and bool((slots.diff() == 1).all()):
        start = int(slots[0, 0])
        return DecodeBatch(queries, slice(start, start + length), length, None)
    mask = None
    if int(visible.min()) < length:
        hidden = (index >= visible.unsqueeze(1))[:, None, None, :]
        mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))
    return DecodeBatch(queries, slots.view(-1), length, mask)


def _plan_paged(
    tables: Tensor, lengths: list[int], queries: Tensor | None, block_size: int, window: int
) -> PagedDecodes:
    longest = max(min(length, window) if window else length for length in lengths)
    return PagedDecodes(
        tables.contiguous(),
        torch.tensor(lengths, dtype=torch.int32),
        queries,
        block_size,
        window,
        max_chunks=-(-longest // CHUNK),
    )


def _plan_prompt(first: int, num_queries: int, context: Tensor, window: int) -> list[PromptChunk]:
    seq_len = context.numel()
    num_cached = seq_len - num_queries
    if num_cached == 0 and num_queries <= _QUERY_CHUNK and not 0 < window < seq_len:
        return [PromptChunk(first, first + num_queries, None, None)]
    chunks = []
    for start in range(0, num_queries, _QUERY_CHUNK):
        stop = min(start + _QUERY_CHUNK, num_queries)
        begin = max(0, num_cached + start - window + 1) if window else 0
        queries = torch.arange(num_cached + start, num_cached + stop).unsqueeze(1)
        keys = torch.arange(begin, num_cached + stop)
        mask = keys <= queries
        if window:
            mask &= keys > queries - window
        chunks.append(PromptChunk(first + start, first + stop, context[begin : num_cached + stop], mask))
    return chunks


def _slots_of(block_tables: Tensor, positions: Tensor, block_size: int) -> Tensor:
    """Cache slots [B, L] int64 of positions [B, L]."""
    blocks = block_tables.gather(1, positions // block_size).long()
    return blocks * block_size + positions % block_size
