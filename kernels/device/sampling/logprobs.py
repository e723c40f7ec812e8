"""Log-probabilities of drawn tokens and of the most likely ones, without a softmax written out."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...reference import Logprobs
from ..checks import check, check_same_device, check_shape, new_output

_CHUNK = 2048


@triton.jit
def _take_largest(x, token, vocab):
    """The largest value, its lowest token, and the values without it."""
    value = tl.max(x, axis=0)
    taken = tl.min(tl.where(x == value, token, vocab), axis=0)
    return value, taken, tl.where(token == taken, float("-inf"), x)


@triton.jit
def _parts_kernel(
    logits_ptr, chosen_ptr, best_ptr, total_ptr, above_ptr, top_ptr, top_ids_ptr,
    logits_stride, vocab, num_parts, K: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """For a part of a line: largest logit, sum of exp(x - largest), number above the chosen one, K largest.

    Grid (num_lines, num_parts).
    """
    line = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    token = part * CHUNK + tl.arange(0, CHUNK)
    line_ptr = logits_ptr + line * logits_stride
    x = tl.load(line_ptr + token, mask=token < vocab, other=float("-inf")).to(tl.float32)
    chosen = tl.load(line_ptr + tl.maximum(tl.load(chosen_ptr + line), 0)).to(tl.float32)
    best = tl.max(x, axis=0)
    anchor = tl.where(best == float("-inf"), 0.0, best)
    at = line * num_parts + part
    tl.store(best_ptr + at, best)
    tl.store(total_ptr + at, tl.sum(tl.exp(x - anchor), axis=0))
    tl.store(above_ptr + at, tl.sum((x > chosen).to(tl.int32), axis=0))
    for k in range(K):
        value, taken, x = _take_largest(x, token, vocab)
        tl.store(top_ptr + at * K + k, value)
        tl.store(top_ids_ptr + at * K + k, taken)


@triton.jit
def _merge_kernel(
    logits_ptr, chosen_ptr, best_ptr, total_ptr, above_ptr, part_top_ptr, part_ids_ptr,
    logprob_ptr, rank_ptr, top_ptr, top_ids_ptr,
    logits_stride, vocab, num_parts, K: tl.constexpr, PARTS: tl.constexpr, CANDIDATES: tl.constexpr,
):  # fmt: skip
    """log p = x - log sum exp x, from the parts. Grid (num_lines,)."""
    line = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    inside = part < num_parts
    at = line * num_parts + part
    bests = tl.load(best_ptr + at, mask=inside, other=float("-inf"))
    totals = tl.load(total_ptr + at, mask=inside, other=0.0)
    best = tl.max(bests, axis=0)
    norm = best + tl.log(tl.sum(totals * tl.exp(bests - best), axis=0))
    rank = tl.sum(tl.load(above_ptr + at, mask=inside, other=0), axis=0) + 1
    chosen = tl.maximum(tl.load(chosen_ptr + line), 0)
    value = tl.load(logits_ptr + line * logits_stride + chosen).to(tl.float32)
    tl.store(logprob_ptr + line, value - norm)
    tl.store(rank_ptr + line, rank.to(tl.int64))
    if K > 0:
        index = tl.arange(0, CANDIDATES)
        found = index < num_parts * K
        at = line * num_parts * K + index
        x = tl.load(part_top_ptr + at, mask=found, other=float("-inf"))
        token = tl.load(part_ids_ptr + at, mask=found, other=vocab)
        for k in range(K):
            largest, taken, x = _take_largest(x, token, vocab)
            tl.store(top_ptr + line * K + k, largest - norm)
            tl.store(top_ids_ptr + line * K + k, taken.to(tl.int64))


def compute_logprobs(
    logits: Tensor, chosen: Tensor, k: int, *, out: Logprobs | None = None, workspace: Tensor | None = None
) -> Logprobs:
    """See `reference.compute_logprobs`; among equals the lowest ids come first.

    Args:
        out, workspace: results and scratch, `logprobs_workspace_size` words of float32; both to be given
            while capturing.
    """
    num_lines, vocab = logits.shape
    check("logits", logits, dim=2, dtype=(torch.float32, torch.float16, torch.bfloat16))
    check("chosen", chosen, dim=1, dtype=torch.int64)
    check_shape("chosen", chosen, (num_lines,))
    if k < 0 or k > vocab:
        raise ValueError(f"k must be between 0 and the vocabulary's {vocab}, it is {k}")
    if out is None:
        out = Logprobs(
            new_output("out", (num_lines,), logits, torch.float32),
            new_output("out", (num_lines,), logits, torch.int64),
            new_output("out", (num_lines, k), logits, torch.float32),
            new_output("out", (num_lines, k), logits, torch.int64),
        )
    size = logprobs_workspace_size(num_lines, vocab, k)
    if workspace is None:
        workspace = new_output("workspace", (size,), logits, torch.float32)
    check("workspace", workspace, dim=1, dtype=torch.float32)
    if workspace.shape[0] < size:
        raise ValueError(f"workspace must have {size} words, it has {workspace.shape[0]}")
    check_same_device(logits=logits, chosen=chosen, workspace=workspace, out=out.chosen)
    num_parts = triton.cdiv(vocab, _CHUNK)
    pieces = workspace[:size].split([num_lines * num_parts * n for n in (1, 1, 1, k, k)])
    best, total, above, top, top_ids = pieces
    parts = (best, total, above.view(torch.int32), top, top_ids.view(torch.int32))
    _parts_kernel[(num_lines, num_parts)](
        logits, chosen, *parts, logits.stride(0), vocab, num_parts, K=k, CHUNK=_CHUNK, num_warps=4
    )
    _merge_kernel[(num_lines,)](
        logits,
        chosen,
        *parts,
        *out,
        logits.stride(0),
        vocab,
        num_parts,
        K=k,
        PARTS=triton.next_power_of_2(num_parts),
        CANDIDATES=triton.next_power_of_2(max(num_parts * k, 1)),
        num_warps=4,
    )
    return out


def logprobs_workspace_size(num_lines: int, vocab: int, k: int) -> int:
    """Words of scratch that `compute_logprobs` needs."""
    return num_lines * triton.cdiv(vocab, _CHUNK) * (3 + 2 * k)
