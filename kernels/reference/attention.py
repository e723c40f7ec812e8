"""Attention of a step's tokens over the paged KV cache.

A step has R rows. Row r brings the queries `query_start[r]` to `query_start[r + 1]`, which are the last
tokens of its context of `seq_lens[r]` tokens; their keys and values are in the cache already:

    position  0 ............ seq_len - n ........ seq_len
              [ earlier steps ][ n queries of now ]

A decode row has n = 1, a prompt chunk n > 1, a padding row n = 0.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

# Queries of one row handled at once: bounds the mask to this many times the context length.
_QUERY_CHUNK = 1024


class DecodeGroup(NamedTuple):
    """Decode rows of similar length, attended in one batch."""

    queries: Tensor
    """[B] int64, where each row's query stands in q."""
    slots: Tensor
    """[B, L] int64, the cache slots each query sees; past a row's end its last slot is repeated."""
    visible: Tensor | None
    """[B, 1, 1, L] bool, false past a row's end; None when all rows see L slots."""


class PromptRow(NamedTuple):
    """A row with several queries."""

    first_query: int
    """Where its first query stands in q."""
    num_queries: int
    slots: Tensor
    """[seq_len] int64, the cache slots of its context."""


class AttentionPlan(NamedTuple):
    """The indexes of one step: the same for all layers that share a block table and a window."""

    decodes: list[DecodeGroup]
    prompts: list[PromptRow]


def plan_attention(
    block_tables: Tensor, query_start: Tensor, seq_lens: Tensor, *, block_size: int, window: int | None = None
) -> AttentionPlan:
    """Returns the slots and masks of a step; arguments as in `paged_attention`.

    Decode rows are grouped by the power of two of their length: padding costs at most a factor of two, and
    the order of a row's sums does not depend on rows of other sizes.
    """
    starts, lengths = query_start.tolist(), seq_lens.tolist()
    by_size: dict[int, list[int]] = {}
    prompts = []
    for row, length in enumerate(lengths):
        num_queries = starts[row + 1] - starts[row]
        if num_queries == 1:
            by_size.setdefault(length.bit_length(), []).append(row)
        elif num_queries > 1:
            positions = torch.arange(length, device=block_tables.device).unsqueeze(0)
            slots = _slots_of(block_tables[row : row + 1], positions, block_size)
            prompts.append(PromptRow(starts[row], num_queries, slots[0]))
    decodes = []
    for rows in by_size.values():
        index = torch.tensor(rows, device=block_tables.device)
        group = _decode_slots(block_tables[index], seq_lens[index].long(), block_size, window)
        decodes.append(DecodeGroup(query_start[index].long(), *group))
    return AttentionPlan(decodes, prompts)


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_start: Tensor,
    seq_lens: Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    out: Tensor | None = None,
    plan: AttentionPlan | None = None,
    rows: Tensor | None = None,
) -> Tensor:
    """Returns causal attention of every query over its row's context, [num_tokens, num_heads, head_dim].

    Scores are `scale * q k^T`, then `softcap * tanh(scores / softcap)` when softcap is set; sums are kept
    in float32. Query head h reads key head `h // (num_heads / num_kv_heads)`. Cache slots that no query sees
    may hold anything, NaN included.

    Args:
        q: [num_tokens, num_heads, head_dim]; tokens past query_start[R] are padding
            and their result is undefined.
        k_cache, v_cache: [num_blocks, block_size, num_kv_heads, head_dim].
        block_tables: [R, max_blocks] int32, the blocks of each row in order.
        query_start: [R + 1] int32, ascending.
        seq_lens: [R] int32, context lengths including this step's tokens.
        window: when set, a query at position p sees only positions above p - window.
        out: [num_tokens, num_heads, head_dim], written and returned when given.
        plan: the step's indexes if the caller has them, from `plan_attention` with the same arguments.
        rows: [R] int64 when block_tables holds permanent rows: which of them each of the R rows is.
    """
    if rows is not None:
        block_tables = block_tables[rows]
    if plan is None:
        block_size = k_cache.shape[1]
        plan = plan_attention(block_tables, query_start, seq_lens, block_size=block_size, window=window)
    if out is None:
        out = torch.zeros_like(q)
    k_slots, v_slots = k_cache.view(-1, *k_cache.shape[2:]), v_cache.view(-1, *v_cache.shape[2:])
    for group in plan.decodes:
        _attend_decodes(q, k_slots, v_slots, group, scale, softcap, out)
    for row in plan.prompts:
        _attend_prompt(q, k_slots, v_slots, row, scale, window, softcap, out)
    return out


def _slots_of(block_tables: Tensor, positions: Tensor, block_size: int) -> Tensor:
    """Cache slots [B, L] of positions [B, L] in rows with block_tables [B, max_blocks]."""
    blocks = block_tables.gather(1, positions // block_size).long()
    return blocks * block_size + positions % block_size


def _decode_slots(
    block_tables: Tensor, seq_lens: Tensor, block_size: int, window: int | None
) -> tuple[Tensor, Tensor | None]:
    first = torch.zeros_like(seq_lens) if window is None else (seq_lens - window).clamp_(min=0)
    num_visible = seq_lens - first
    index = torch.arange(int(num_visible.max()), device=seq_lens.device).unsqueeze(0)
    visible = index < num_visible.unsqueeze(1)
    # Repeating the last slot keeps stale slots, which may hold NaN, out of the masked positions.
    positions = torch.minimum(first.unsqueeze(1) + index, seq_lens.unsqueeze(1) - 1)
    slots = _slots_of(block_tables, positions, block_size)
    return slots, None if bool(visible.all()) else visible[:, None, None, :]


def _attend_decodes(
    q: Tensor,
    k_slots: Tensor,
    v_slots: Tensor,
    group: DecodeGroup,
    scale: float,
    softcap: float | None,
    out: Tensor,
) -> None:
    num_rows, length = group.slots.shape
    num_kv_heads, head_dim = k_slots.shape[1:]
    shape = (num_rows, length, num_kv_heads, head_dim)
    keys = k_slots.index_select(0, group.slots.view(-1)).view(shape).transpose(1, 2).to(q.dtype)
    values = v_slots.index_select(0, group.slots.view(-1)).view(shape).transpose(1, 2).to(q.dtype)
    # The query heads of one key head stand where the attention operator expects query positions.
    queries = q.index_select(0, group.queries).view(num_rows, num_kv_heads, -1, head_dim)
    result = _attend(queries, keys, values, group.visible, scale, softcap)
    out.index_copy_(0, group.queries, result.reshape(num_rows, -1, head_dim))


def _attend_prompt(
    q: Tensor,
    k_slots: Tensor,
    v_slots: Tensor,
    row: PromptRow,
    scale: float,
    window: int | None,
    softcap: float | None,
    out: Tensor,
) -> None:
    keys = k_slots.index_select(0, row.slots).transpose(0, 1).to(q.dtype).unsqueeze(0)
    values = v_slots.index_select(0, row.slots).transpose(0, 1).to(q.dtype).unsqueeze(0)
    num_cached = row.slots.numel() - row.num_queries
    for start in range(0, row.num_queries, _QUERY_CHUNK):
        stop = min(start + _QUERY_CHUNK, row.num_queries)
        chunk = slice(row.first_query + start, row.first_query + stop)
        last = num_cached + stop
        first = 0 if window is None else max(0, num_cached + start - window + 1)
        query_positions = torch.arange(num_cached + start, last, device=q.device).unsqueeze(1)
        key_positions = torch.arange(first, last, device=q.device)
        visible = key_positions <= query_positions
        if window is not None:
            visible &= key_positions > query_positions - window
        queries = q[chunk].transpose(0, 1).unsqueeze(0)
        result = _attend(queries, keys[:, :, first:last], values[:, :, first:last], visible, scale, softcap)
        out[chunk] = result[0].transpose(0, 1)


def _attend(
    queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None, scale: float, softcap: float | None
) -> Tensor:
    """Grouped-query attention [B, heads, n, dim] over [B, kv_heads, L, dim]."""
    grouped = queries.shape[1] != keys.shape[1]
    if softcap is None:
        return scaled_dot_product_attention(
            queries, keys, values, attn_mask=visible, scale=scale, enable_gqa=grouped
        )
    if grouped:
        group_size = queries.shape[1] // keys.shape[1]
        keys, values = (x.repeat_interleave(group_size, dim=1) for x in (keys, values))
    scores = queries.float() @ keys.float().transpose(-1, -2) * scale
    scores = softcap * torch.tanh(scores / softcap)
    if visible is not None:
        scores.masked_fill_(~visible, float("-inf"))
    return (scores.softmax(-1) @ values.float()).to(queries.dtype)
