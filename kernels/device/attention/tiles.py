"""What both attention kernels do for each tile of keys: load it, and one step of online softmax."""

import triton
import triton.language as tl


@triton.jit
def table_of(tables_ptr, rows_ptr, row, table_stride, HAS_ROWS: tl.constexpr):
    """Where a row's block table begins; with HAS_ROWS, `rows` names its permanent row."""
    table_row = row.to(tl.int64)
    if HAS_ROWS:
        table_row = tl.load(rows_ptr + row)
    return tables_ptr + table_row * table_stride


@triton.jit
def soft_limit(scores, SOFTCAP: tl.constexpr):
    """cap * tanh(scores / cap) of scores in units of log2(e), where cap = SOFTCAP * log2(e)."""
    cap: tl.constexpr = SOFTCAP * 1.4426950408889634
    return cap * (2.0 * tl.sigmoid(scores * (2.0 / cap)) - 1.0)


@triton.jit
def online_step(acc, best, total, scores, v, PRECISION: tl.constexpr):
    """Adds one tile of keys to a running softmax.

    `scores` [M, N] are in units of log2(e), -inf where masked; `v` [N, D]. The running values are acc [M, D],
    best and total [M]: the weighted sum, the largest score and the sum of exp2(score - best).
    Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax".
    """
    new_best = tl.maximum(best, tl.max(scores, axis=1))
    # A row that has seen no key yet would subtract -inf from -inf.
    anchor = tl.where(new_best == float("-inf"), 0.0, new_best)
    weights = tl.exp2(scores - anchor[:, None])
    shrink = tl.exp2(best - anchor)
    total = total * shrink + tl.sum(weights, axis=1)
    acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
    return acc, new_best, total


@triton.jit
def load_tile(
    k_ptr, v_ptr, table_ptr, start, begin, end, slot_stride, head_offset,
    HEAD_DIM: tl.constexpr, DIM_BLOCK: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """Keys and values [TILE, DIM_BLOCK] of the positions from `start` (a multiple of TILE) on.

    With MASKED, positions outside [begin, end) are not read and are 0: their slots may hold NaN, which a
    weight of 0 would not cancel. Slot offsets are int64: a cache passes 2^31 elements.
    """
    position = start + tl.arange(0, TILE)
    if BLOCK_SIZE % TILE == 0:
        block = tl.load(table_ptr + start // BLOCK_SIZE).to(tl.int64)
        slot = block * BLOCK_SIZE + (start % BLOCK_SIZE + tl.arange(0, TILE))
    elif MASKED:
        block = tl.load(table_ptr + position // BLOCK_SIZE, mask=position < end, other=0).to(tl.int64)
        slot = block * BLOCK_SIZE + position % BLOCK_SIZE
    else:
        block = tl.load(table_ptr + position // BLOCK_SIZE).to(tl.int64)
        slot = block * BLOCK_SIZE + position % BLOCK_SIZE
    dim = tl.arange(0, DIM_BLOCK)
    at = slot[:, None] * slot_stride + (head_offset + dim)[None, :]
    if MASKED:
        inside = ((position >= begin) & (position < end))[:, None] & (dim < HEAD_DIM)[None, :]
        k = tl.load(k_ptr + at, mask=inside, other=0.0)
        v = tl.load(v_ptr + at, mask=inside, other=0.0)
    elif HEAD_DIM < DIM_BLOCK:
        inside = (dim < HEAD_DIM)[None, :]
        k = tl.load(k_ptr + at, mask=inside, other=0.0)
        v = tl.load(v_ptr + at, mask=inside, other=0.0)
    else:
        k = tl.load(k_ptr + at)
        v = tl.load(v_ptr + at)
    return k, v
