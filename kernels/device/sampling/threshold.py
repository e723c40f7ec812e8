"""min_p, top_k and top_p as one number for each line: the least logit that they keep."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...reference import GREEDY_BELOW
from ..checks import check, check_same_device, check_shape, new_output

_GREEDY_BELOW = tl.constexpr(GREEDY_BELOW)
_BLOCK = 2048
_CAPACITY = 4096
"""Candidates kept of a line: more than any usual nucleus, few enough to search in a moment."""
_PROBES = tl.constexpr(4)


@triton.jit
def _weigh(ptr, length, probes, best, heat, BLOCK: tl.constexpr):
    """For each probe: how many of the values are at least as large, and the sum of exp((x - best) / heat)."""
    counts = tl.zeros((BLOCK, _PROBES), tl.int32)
    masses = tl.zeros((BLOCK, _PROBES), tl.float32)
    for start in range(0, length, BLOCK):
        index = start + tl.arange(0, BLOCK)
        x = tl.load(ptr + index, mask=index < length, other=float("-inf")).to(tl.float32)
        weight = tl.exp((x - best) / heat)
        kept = x[:, None] >= probes[None, :]
        counts += kept.to(tl.int32)
        masses += tl.where(kept, weight[:, None], 0.0)
    return tl.sum(counts, axis=0), tl.sum(masses, axis=0)


@triton.jit
def _search(ptr, length, low, high, num_low, best, heat, wanted, mass, BLOCK: tl.constexpr):
    """The largest value from [low, high) such that what is at least as large is enough.

    Enough are `wanted` values, or a mass of `mass` if wanted is 0. Takes enough at `low` (num_low values) and
    not at `high` for granted and cuts the interval into five at each pass, until it holds one value or, where
    values are equal, no other number.
    """
    index = tl.arange(0, _PROBES)
    num_high = 0
    probes = low + (high - low) * ((index + 1).to(tl.float32) / (_PROBES + 1))
    while (num_low - num_high > 1) & (tl.min(probes, axis=0) > low) & (tl.max(probes, axis=0) < high):
        counts, masses = _weigh(ptr, length, probes, best, heat, BLOCK)
        enough = ((wanted > 0) & (counts >= wanted)) | ((wanted == 0) & (masses >= mass))
        num_low = tl.min(tl.where(enough, counts, num_low), axis=0)
        num_high = tl.max(tl.where(enough, num_high, counts), axis=0)
        low = tl.max(tl.where(enough, probes, low), axis=0)
        high = tl.min(tl.where(enough, high, probes), axis=0)
        probes = low + (high - low) * ((index + 1).to(tl.float32) / (_PROBES + 1))
    return low


@triton.jit
def _filter(ptr, length, lowest, num_values, total, best, heat, top_k, top_p, BLOCK: tl.constexpr):
    """The threshold of top_k and then top_p over the values from `lowest` on, which hold the answer of both.

    `total` is the mass that top_p is a part of when top_k takes nothing away.
    """
    # Above the largest value nothing is enough.
    high = best + tl.maximum(tl.abs(best) * 1e-6, 1e-6)
    if (top_k > 0) & (top_k <= num_values):
        lowest = _search(ptr, length, lowest, high, num_values, best, heat, top_k, 0.0, BLOCK)
        probes = tl.zeros((_PROBES,), tl.float32) + lowest
        counts, masses = _weigh(ptr, length, probes, best, heat, BLOCK)
        num_values = tl.max(counts, axis=0)
        total = tl.max(masses, axis=0)
    if top_p < 1.0:
        # The largest value weighs 1, so that it is kept by any positive mass.
        mass = tl.maximum(top_p * total, 1e-30)
        lowest = _search(ptr, length, lowest, high, num_values, best, heat, 0, mass, BLOCK)
    return lowest


@triton.jit
def _compact(ptr, length, lowest, candidates_ptr, BLOCK: tl.constexpr):
    """Writes the values from `lowest` on to `candidates` side by side."""
    filled = 0
    for start in range(0, length, BLOCK):
        index = start + tl.arange(0, BLOCK)
        x = tl.load(ptr + index, mask=index < length, other=float("-inf")).to(tl.float32)
        kept = x >= lowest
        place = filled + tl.cumsum(kept.to(tl.int32), axis=0) - 1
        tl.store(candidates_ptr + place, x, mask=kept)
        filled += tl.sum(kept.to(tl.int32), axis=0)
    tl.debug_barrier()


@triton.jit
def _range(ptr, length, BLOCK: tl.constexpr):
    """The largest value and the least one above -inf."""
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    least = tl.full((BLOCK,), float("inf"), tl.float32)
    for start in range(0, length, BLOCK):
        index = start + tl.arange(0, BLOCK)
        x = tl.load(ptr + index, mask=index < length, other=float("-inf")).to(tl.float32)
        largest = tl.maximum(largest, x)
        least = tl.minimum(least, tl.where(x > float("-inf"), x, float("inf")))
    return tl.max(largest, axis=0), tl.min(least, axis=0)


@triton.jit
def _find(
    ptr, length, lowest, best, heat, top_k, top_p, candidates_ptr, CAPACITY: tl.constexpr, BLOCK: tl.constexpr
):
    """The threshold of top_k and top_p over the values from `lowest` on.

    Weighs what lies above guesses at 4, 9 and 16 of heat below the largest. When a guess keeps enough for the
    filters and few enough for `candidates`, those are copied there and searched; else the whole line is.
    """
    index = tl.arange(0, _PROBES)
    guess = (index + 2).to(tl.float32)
    guesses = tl.maximum(best - guess * guess * heat, lowest)
    probes = tl.where(index == _PROBES - 1, lowest, guesses)
    counts, masses = _weigh(ptr, length, probes, best, heat, BLOCK)
    num_values = tl.max(counts, axis=0)
    total = tl.max(masses, axis=0)
    enough = tl.where(top_k > 0, counts >= tl.minimum(top_k, num_values), masses >= top_p * total)
    usable = enough & (counts <= CAPACITY)
    if tl.max(usable.to(tl.int32), axis=0) > 0:
        lowest = tl.max(tl.where(usable, probes, float("-inf")), axis=0)
        num_values = tl.min(tl.where(usable, counts, 2147483647), axis=0)
        _compact(ptr, length, lowest, candidates_ptr, BLOCK)
        return _filter(candidates_ptr, num_values, lowest, num_values, total, best, heat, top_k, top_p, BLOCK)
    else:
        return _filter(ptr, length, lowest, num_values, total, best, heat, top_k, top_p, BLOCK)


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
        num_warps=8,
    )
    return out
