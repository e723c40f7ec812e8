"""min_p, top_k and top_p as one number for each line: the least logit that they keep.

A line is read from device memory once and from the cache a few times more: its range, its mass above some
guesses, and the few values among which the answer must lie. Those stay in registers while the search goes on.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...reference import GREEDY_BELOW
from ..checks import check, check_same_device, check_shape, new_output

_GREEDY_BELOW = tl.constexpr(GREEDY_BELOW)
_BLOCK = 4096
_CAPACITY = 4096
"""Candidates kept of a line: more than any usual nucleus, few enough for the registers of one program."""
_NUM_WARPS = 16
_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _probe(low, high):
    """Four numbers that cut [low, high) into five."""
    step = (high - low) * 0.2
    return low + step, low + step * 2, low + step * 3, low + step * 4


@triton.jit
def _weigh(ptr, length, p0, p1, p2, p3, best, rate, BLOCK: tl.constexpr):
    """For each probe: how many of the values are at least as large, and the sum of 2 ** ((x - best) * rate).

    The probes are four scalars and the sums one number for each eight values: as a second dimension of the
    block they would send every value through shared memory.
    """
    PART: tl.constexpr = BLOCK // 8
    offsets = tl.arange(0, PART)[:, None] * 8 + tl.arange(0, 8)[None, :]
    n0 = tl.zeros((PART,), tl.int32)
    n1 = tl.zeros((PART,), tl.int32)
    n2 = tl.zeros((PART,), tl.int32)
    n3 = tl.zeros((PART,), tl.int32)
    m0 = tl.zeros((PART,), tl.float32)
    m1 = tl.zeros((PART,), tl.float32)
    m2 = tl.zeros((PART,), tl.float32)
    m3 = tl.zeros((PART,), tl.float32)
    for start in tl.range(0, length, BLOCK, num_stages=3):
        index = start + offsets
        x = tl.load(ptr + index, mask=index < length, other=float("-inf")).to(tl.float32)
        weight = tl.exp2((x - best) * rate)
        n0 += tl.sum((x >= p0).to(tl.int32), axis=1)
        n1 += tl.sum((x >= p1).to(tl.int32), axis=1)
        n2 += tl.sum((x >= p2).to(tl.int32), axis=1)
        n3 += tl.sum((x >= p3).to(tl.int32), axis=1)
        m0 += tl.sum(tl.where(x >= p0, weight, 0.0), axis=1)
        m1 += tl.sum(tl.where(x >= p1, weight, 0.0), axis=1)
        m2 += tl.sum(tl.where(x >= p2, weight, 0.0), axis=1)
        m3 += tl.sum(tl.where(x >= p3, weight, 0.0), axis=1)
    return (
        tl.sum(n0, axis=0), tl.sum(n1, axis=0), tl.sum(n2, axis=0), tl.sum(n3, axis=0),
        tl.sum(m0, axis=0), tl.sum(m1, axis=0), tl.sum(m2, axis=0), tl.sum(m3, axis=0),
    )  # fmt: skip


@triton.jit
def _weigh_few(values, weights, probe):
    """`_weigh` of one probe over values in registers."""
    kept = values >= probe
    return tl.sum(kept.to(tl.int32), axis=0), tl.sum(tl.where(kept, weights, 0.0), axis=0)


@triton.jit
def _cut(low, num_low, high, num_high, mass_high, probe, num, weight, wanted, mass):
    """[low, high) after a look at one probe. Enough are `wanted` values, or a mass of `mass` if it is 0."""
    enough = ((wanted > 0) & (num >= wanted)) | ((wanted == 0) & (weight >= mass))
    up = enough & (probe > low)
    down = (enough == 0) & (probe < high)
    return (
        tl.where(up, probe, low), tl.where(up, num, num_low),
        tl.where(down, probe, high), tl.where(down, num, num_high), tl.where(down, weight, mass_high),
    )  # fmt: skip


@triton.jit
def _search_few(values, weights, low, num_low, high, num_high, mass_high, wanted, mass):
    """The largest number from [low, high) such that what is at least as large is enough.

    `values` (with -inf behind them) hold all that lie in the interval; `num_high` and `mass_high` are what
    lies above. Takes enough at `low` and not at `high` for granted, and ends when one value is left or, where
    values are equal, no other number.
    """
    inside = (values >= low) & (values < high)
    values = tl.where(inside, values, float("-inf"))
    num_above = num_high
    mass_above = mass_high
    p0, p1, p2, p3 = _probe(low, high)
    while (num_low - num_high > 1) & (p0 > low) & (p3 < high):
        n0, m0 = _weigh_few(values, weights, p0)
        n1, m1 = _weigh_few(values, weights, p1)
        n2, m2 = _weigh_few(values, weights, p2)
        n3, m3 = _weigh_few(values, weights, p3)
        low, num_low, high, num_high, mass_high = _cut(
            low, num_low, high, num_high, mass_high, p0, num_above + n0, mass_above + m0, wanted, mass
        )
        low, num_low, high, num_high, mass_high = _cut(
            low, num_low, high, num_high, mass_high, p1, num_above + n1, mass_above + m1, wanted, mass
        )
        low, num_low, high, num_high, mass_high = _cut(
            low, num_low, high, num_high, mass_high, p2, num_above + n2, mass_above + m2, wanted, mass
        )
        low, num_low, high, num_high, mass_high = _cut(
            low, num_low, high, num_high, mass_high, p3, num_above + n3, mass_above + m3, wanted, mass
        )
        p0, p1, p2, p3 = _probe(low, high)
    return low, num_low


@triton.jit
def _gather(ptr, length, low, high, candidates_ptr, CAPACITY: tl.constexpr, BLOCK: tl.constexpr):
    """The values in [low, high), at most CAPACITY, in the order of the line; -inf behind them."""
    filled = 0
    for start in range(0, length, BLOCK):
        index = start + tl.arange(0, BLOCK)
        x = tl.load(ptr + index, mask=index < length, other=float("-inf")).to(tl.float32)
        kept = (x >= low) & (x < high)
        ranks = tl.cumsum(kept.to(tl.int32), axis=0)
        tl.store(candidates_ptr + filled + ranks - 1, x, mask=kept)
        filled += tl.max(ranks, axis=0)
    tl.debug_barrier()
    index = tl.arange(0, CAPACITY)
    values = tl.load(candidates_ptr + index, mask=index < filled, other=float("-inf"))
    tl.debug_barrier()
    return values


@triton.jit
def _search_line(
    ptr, length, low, num_low, high, best, rate, wanted, mass, candidates_ptr, CAPACITY: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """`_search_few` over a line, whose interval is narrowed until what is left in it fits into registers."""
    num_high = tl.full((), 0, tl.int32)
    mass_high = tl.full((), 0.0, tl.float32)
    p0, p1, p2, p3 = _probe(low, high)
    while (num_low - num_high > CAPACITY) & (p0 > low) & (p3 < high):
        n0, n1, n2, n3, m0, m1, m2, m3 = _weigh(ptr, length, p0, p1, p2, p3, best, rate, BLOCK)
        low, num_low, high, num_high, mass_high = _cut(
            low, num_low, high, num_high, mass_high, p0, n0, m0, wanted, mass
        )
        low, num_low, high, num_high, mass_high = _cut(
            low, num_low, high, num_high, mass_high, p1, n1, m1, wanted, mass
        )
        low, num_low, high, num_high, mass_high = _cut(
            low, num_low, high, num_high, mass_high, p2, n2, m2, wanted, mass
        )
        low, num_low, high, num_high, mass_high = _cut(
            low, num_low, high, num_high, mass_high, p3, n3, m3, wanted, mass
        )
        p0, p1, p2, p3 = _probe(low, high)
    if num_low - num_high <= CAPACITY:
        values = _gather(ptr, length, low, high, candidates_ptr, CAPACITY, BLOCK)
        weights = tl.exp2((values - best) * rate)
        low, num_low = _search_few(values, weights, low, num_low, high, num_high, mass_high, wanted, mass)
    return low, num_low


@triton.jit
def _range(ptr, length, BLOCK: tl.constexpr):
    """The largest value and the least one above -inf."""
    PART: tl.constexpr = BLOCK // 8
    offsets = tl.arange(0, PART)[:, None] * 8 + tl.arange(0, 8)[None, :]
    largest = tl.full((PART,), float("-inf"), tl.float32)
    least = tl.full((PART,), float("inf"), tl.float32)
    for start in tl.range(0, length, BLOCK, num_stages=3):
        index = start + offsets
        x = tl.load(ptr + index, mask=index < length, other=float("-inf")).to(tl.float32)
        largest = tl.maximum(largest, tl.max(x, axis=1))
        least = tl.minimum(least, tl.min(tl.where(x > float("-inf"), x, float("inf")), axis=1))
    return tl.max(largest, axis=0), tl.min(least, axis=0)


@triton.jit
def _find(
    ptr, length, lowest, best, heat, top_k, top_p, candidates_ptr, CAPACITY: tl.constexpr, BLOCK: tl.constexpr
):
    """The threshold of top_k and then top_p over the values from `lowest` on.

    Weighs what lies above guesses at 4, 9 and 16 of heat below the largest. When a guess keeps enough for the
    filters and few enough for registers, both are searched there; else each narrows the line for itself.
    """
    rate = _LOG2_E / heat
    # Above the largest value nothing is enough.
    high = best + tl.maximum(tl.abs(best) * 1e-6, 1e-6)
    p0 = tl.maximum(best - 4 * heat, lowest)
    p1 = tl.maximum(best - 9 * heat, lowest)
    p2 = tl.maximum(best - 16 * heat, lowest)
    n0, n1, n2, num_values, m0, m1, m2, total = _weigh(ptr, length, p0, p1, p2, lowest, best, rate, BLOCK)
    filled = tl.minimum(top_k, num_values)
    enough0 = tl.where(top_k > 0, n0 >= filled, m0 >= top_p * total)
    enough1 = tl.where(top_k > 0, n1 >= filled, m1 >= top_p * total)
    enough2 = tl.where(top_k > 0, n2 >= filled, m2 >= top_p * total)
    guess = tl.where(enough0, p0, tl.where(enough1, p1, tl.where(enough2, p2, lowest)))
    num_guess = tl.where(enough0, n0, tl.where(enough1, n1, tl.where(enough2, n2, num_values)))
    none = tl.full((), 0, tl.int32)
    nothing = tl.full((), 0.0, tl.float32)
    cuts_k = (top_k > 0) & (top_k <= num_values)
    if num_guess <= CAPACITY:
        lowest = guess
        values = _gather(ptr, length, lowest, high, candidates_ptr, CAPACITY, BLOCK)
        weights = tl.exp2((values - best) * rate)
        num_values = num_guess
        if cuts_k:
            lowest, _num_kept = _search_few(
                values, weights, lowest, num_values, high, none, nothing, top_k, 0.0
            )
            num_values, total = _weigh_few(values, weights, lowest)
        if top_p < 1.0:
            # The largest value weighs 1, so that it is kept by any positive mass.
            mass = tl.maximum(top_p * total, 1e-30)
            lowest, _num_kept = _search_few(values, weights, lowest, num_values, high, none, nothing, 0, mass)
    else:
        if cuts_k:
            lowest, _num_kept = _search_line(
                ptr, length, lowest, num_values, high, best, rate, top_k, 0.0, candidates_ptr, CAPACITY, BLOCK
            )
            num_values, n0, n1, n2, total, m0, m1, m2 = _weigh(
                ptr, length, lowest, high, high, high, best, rate, BLOCK
            )
        if top_p < 1.0:
            mass = tl.maximum(top_p * total, 1e-30)
            lowest, _num_kept = _search_line(
                ptr, length, lowest, num_values, high, best, rate, 0, mass, candidates_ptr, CAPACITY, BLOCK
            )
    return lowest


@triton.jit
def _threshold_kernel(
    logits_ptr, rows_ptr, temperature_ptr, min_p_ptr, top_k_ptr, top_p_ptr, last_ptr, candidates_ptr, out_ptr,
    logits_stride, vocab,
    MIN_P: tl.constexpr, TOP_K: tl.constexpr, TOP_P: tl.constexpr, LAST: tl.constexpr,
    CAPACITY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = max(best + heat * log(min_p), the top_k-th largest, the least of the top_p nucleus).

    Grid (num_lines,). The nucleus is the smallest set of most likely tokens whose mass reaches top_p of what
    the other two filters left. Lines with nothing to filter read no logits.
    """
    line = tl.program_id(0).to(tl.int64)
    row = tl.load(rows_ptr + line)
    threshold = tl.full((), float("-inf"), tl.float32)
    temperature = tl.full((), 0.0, tl.float32)
    if row >= 0:
        temperature = tl.load(temperature_ptr + row)
    heat = temperature
    min_p = tl.full((), 0.0, tl.float32)
    top_k = tl.full((), 0, tl.int32)
    top_p = tl.full((), 1.0, tl.float32)
    if temperature >= _GREEDY_BELOW:
        if LAST:
            heat = tl.where(tl.load(last_ptr + row) != 0, 1.0, temperature)
        if MIN_P:
            min_p = tl.load(min_p_ptr + row)
        if TOP_K:
            top_k = tl.load(top_k_ptr + row)
            top_k = tl.where(top_k < vocab, tl.maximum(top_k, 0), 0)
        if TOP_P:
            top_p = tl.load(top_p_ptr + row)
    if (min_p > 0) | (top_k > 0) | (top_p < 1.0):
        ptr = logits_ptr + line * logits_stride
        best, lowest = _range(ptr, vocab, BLOCK)
        if (best > float("-inf")) & (best < float("inf")):
            if min_p > 0:
                threshold = best + heat * tl.log(min_p)
            if (top_k > 0) | (top_p < 1.0):
                lowest = tl.maximum(lowest, threshold)
                threshold = _find(
                    ptr, vocab, lowest, best, heat, top_k, top_p, candidates_ptr + line * CAPACITY,
                    CAPACITY, BLOCK,
                )  # fmt: skip
    tl.store(out_ptr + line, threshold)


def make_candidates(max_lines: int, *, device: torch.device | str) -> Tensor:
    """Allocates the scratch that `find_threshold` needs for at most so many lines."""
    return torch.empty(max_lines, _CAPACITY, dtype=torch.float32, device=device)


def find_threshold(
    logits: Tensor,
    rows: Tensor,
    temperature: Tensor,
    *,
    min_p: Tensor | None = None,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    temperature_last: Tensor | None = None,
    out: Tensor | None = None,
    candidates: Tensor | None = None,
) -> Tensor:
    """See `reference.find_threshold`; any number between the last kept logit and the next may come out.

    Args:
        candidates: scratch from `make_candidates`, to be given while capturing.
    """
    num_lines, vocab = logits.shape
    check("logits", logits, dim=2, dtype=(torch.float32, torch.float16, torch.bfloat16))
    check("rows", rows, dim=1, dtype=torch.int64)
    check_shape("rows", rows, (num_lines,))
    check("temperature", temperature, dim=1, dtype=torch.float32)
    optional = {"min_p": min_p, "top_k": top_k, "top_p": top_p, "temperature_last": temperature_last}
    dtypes = {"top_k": torch.int32, "temperature_last": (torch.bool, torch.int32)}
    for name, tensor in optional.items():
        if tensor is not None:
            check(name, tensor, dim=1, dtype=dtypes.get(name, torch.float32))
            check_shape(name, tensor, tuple(temperature.shape))
    if out is None:
        out = new_output("out", (num_lines,), logits, torch.float32)
    check("out", out, dim=1, dtype=torch.float32)
    if candidates is None:
        candidates = new_output("candidates", (num_lines, _CAPACITY), logits, torch.float32)
    check("candidates", candidates, dim=2, dtype=torch.float32, contiguous=True)
    check_same_device(logits=logits, rows=rows, temperature=temperature, out=out, **optional)
    _threshold_kernel[(num_lines,)](
        logits,
        rows,
        temperature,
        *(temperature if tensor is None else tensor for tensor in optional.values()),
        candidates,
        out,
        logits.stride(0),
        vocab,
        MIN_P=min_p is not None,
        TOP_K=top_k is not None,
        TOP_P=top_p is not None,
        LAST=temperature_last is not None,
        CAPACITY=_CAPACITY,
        BLOCK=_BLOCK,
        num_warps=_NUM_WARPS,
    )
    return out
