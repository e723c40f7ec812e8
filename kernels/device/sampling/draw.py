"""The draw: one token from each line of logits, in one pass over them."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...reference import GREEDY_BELOW, STREAM_GUMBEL
from ..checks import check, check_same_device, check_shape, new_output

_GREEDY_BELOW = tl.constexpr(GREEDY_BELOW)
_STREAM = tl.constexpr(STREAM_GUMBEL)
_BLOCK = 1024
_SMALLEST_CHUNK = 2048


class DrawWorkspace(NamedTuple):
    """What the programs of a line tell each other."""

    scores: Tensor
    """[max_lines, max_chunks] float32, the best score of each part of a line."""
    tokens: Tensor
    """[max_lines, max_chunks] int32, where it is."""
    arrivals: Tensor
    """[max_lines] int32, parts that are done; 0 between launches."""


def make_draw_workspace(max_lines: int, vocab: int, *, device: torch.device | str) -> DrawWorkspace:
    """Allocates what `draw_tokens` needs for at most so many lines."""
    chunks = triton.cdiv(vocab, _SMALLEST_CHUNK)
    return DrawWorkspace(
        torch.empty(max_lines, chunks, dtype=torch.float32, device=device),
        torch.empty(max_lines, chunks, dtype=torch.int32, device=device),
        torch.zeros(max_lines, dtype=torch.int32, device=device),
    )


@triton.jit
def _gumbel_noise(seed, choice, position, first_token, BLOCK: tl.constexpr):
    """-log(-log(1 - u)) for BLOCK tokens from `first_token` (a multiple of 4) on.

    A Philox block gives the bits of four tokens, so a thread holds four neighbours. u = (bits + 1/2) / 2^32;
    -log(1 - u) is summed as a series where u is small, since the winners of a large vocabulary have u near
    1 / vocab and 1 - u would keep few of their bits.
    """
    index = first_token // 4 + tl.arange(0, BLOCK // 4)
    zero = index * 0
    w0, w1, w2, w3 = tl.philox(
        seed, zero + position.to(tl.int32), zero + choice.to(tl.int32), zero + _STREAM, index
    )
    bits = tl.reshape(tl.join(tl.join(w0, w2), tl.join(w1, w3)), (BLOCK,))
    # In two signed parts, since the interpreter and the device convert unsigned words differently.
    low = (bits & 0x7FFFFFFF).to(tl.int32).to(tl.float32)
    high = (bits >> 31).to(tl.int32).to(tl.float32)
    u = tl.minimum((low + 0.5) * 2.3283064365386963e-10 + high * 0.5, 0.99999994)
    series = u * (1.0 + u * (0.5 + u * (0.3333333333 + u * 0.25)))
    return -tl.log(tl.where(u < 0.01, series, -tl.log(1.0 - u)))


@triton.jit
def _best_part(scores_ptr, tokens_ptr, first, num_parts, vocab, CHUNKS: tl.constexpr):
    """The token of the best score of a line's parts, or -1 when that is not finite.

    The loads bypass L1, which is not coherent with what other programs wrote.
    """
    part = tl.arange(0, CHUNKS)
    inside = part < num_parts
    scores = tl.load(scores_ptr + first + part, mask=inside, other=float("-inf"), cache_modifier=".cg")
    tokens = tl.load(tokens_ptr + first + part, mask=inside, other=0, cache_modifier=".cg")
    best = tl.max(scores, axis=0)
    token = tl.min(tl.where(scores == best, tokens, vocab), axis=0)
    usable = (best > float("-inf")) & (best < float("inf"))
    return tl.where(usable, token, -1).to(tl.int64)


@triton.jit(do_not_specialize=["chunk"])
def _draw_kernel(
    logits_ptr, rows_ptr, positions_ptr, temperature_ptr, seed_ptr, choice_ptr, threshold_ptr,
    scores_ptr, tokens_ptr, arrivals_ptr, out_ptr, logits_stride, scores_stride, vocab, chunk,
    HAS_THRESHOLD: tl.constexpr, CHUNKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """token = argmax(x + temperature * noise) over x >= threshold; without noise where the row is greedy.

    Grid (num_lines, chunks): a program keeps the best of its chunk in each thread; the last one of a line
    compares the chunks. NaN and +inf score +inf, so that a line that has them, or nothing but -inf, ends with
    no token. The lowest id wins among equals.
    """
    line = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    row = tl.load(rows_ptr + line)
    if row < 0:
        if part == 0:
            tl.store(out_ptr + line, tl.full((), -1, tl.int64))
        return
    temperature = tl.load(temperature_ptr + row)
    drawn = temperature >= _GREEDY_BELOW
    seed = tl.load(seed_ptr + row)
    choice = tl.load(choice_ptr + row)
    position = tl.load(positions_ptr + line)
    threshold = tl.full((), float("-inf"), tl.float32)
    if HAS_THRESHOLD:
        threshold = tl.where(drawn, tl.load(threshold_ptr + line), threshold)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    best_token = tl.zeros((BLOCK,), tl.int32)
    for start in range(part * chunk, tl.minimum((part + 1) * chunk, vocab), BLOCK):
        token = start + tl.arange(0, BLOCK)
        inside = token < vocab
        x_at = logits_ptr + line * logits_stride + token
        x = tl.load(x_at, mask=inside, other=float("-inf")).to(tl.float32)
        score = x
        if drawn:
            score = x + temperature * _gumbel_noise(seed, choice, position, start, BLOCK)
        if HAS_THRESHOLD:
            score = tl.where(x < threshold, float("-inf"), score)
        score = tl.where(x < float("inf"), score, float("inf"))
        better = score > best
        best = tl.where(better, score, best)
        best_token = tl.where(better, token, best_token)
    top = tl.max(best, axis=0)
    top_token = tl.min(tl.where(best == top, best_token, vocab), axis=0)
    own = line * scores_stride + part
    tl.store(scores_ptr + own, top)
    tl.store(tokens_ptr + own, top_token)
    tl.debug_barrier()
    num_parts = tl.num_programs(1)
    arrived = tl.atomic_add(arrivals_ptr + line, 1, sem="acq_rel")
    if arrived == num_parts - 1:
        tl.store(arrivals_ptr + line, 0)
        winner = _best_part(scores_ptr, tokens_ptr, line * scores_stride, num_parts, vocab, CHUNKS)
        tl.store(out_ptr + line, winner)


def draw_tokens(
    logits: Tensor,
    rows: Tensor,
    positions: Tensor,
    temperature: Tensor,
    seed: Tensor,
    choice: Tensor,
    *,
    threshold: Tensor | None = None,
    out: Tensor | None = None,
    workspace: DrawWorkspace | None = None,
) -> Tensor:
    """See `reference.draw_tokens`; a padding line gives -1."""
    num_lines, vocab = logits.shape
    check("logits", logits, dim=2, dtype=(torch.float32, torch.float16, torch.bfloat16))
    for name, tensor in (("rows", rows), ("positions", positions)):
        check(name, tensor, dim=1, dtype=torch.int64)
        check_shape(name, tensor, (num_lines,))
    check("temperature", temperature, dim=1, dtype=torch.float32)
    for name, tensor in (("seed", seed), ("choice", choice)):
        check(name, tensor, dim=1, dtype=torch.int64)
        check_shape(name, tensor, tuple(temperature.shape))
    if threshold is not None:
        check("threshold", threshold, dim=1, dtype=torch.float32)
    if out is None:
        out = new_output("out", (num_lines,), logits, torch.int64)
    check("out", out, dim=1, dtype=torch.int64)
    if workspace is None:
        if logits.is_cuda and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("workspace must be passed in while a graph is captured")
        workspace = make_draw_workspace(num_lines, vocab, device=logits.device)
    check_same_device(logits=logits, rows=rows, temperature=temperature, threshold=threshold, out=out)
    # Few lines need many programs each, many lines need few.
    chunk = _SMALLEST_CHUNK if num_lines < 32 else 4 * _SMALLEST_CHUNK
    _draw_kernel[(num_lines, triton.cdiv(vocab, chunk))](
        logits,
        rows,
        positions,
        temperature,
        seed,
        choice,
        rows if threshold is None else threshold,
        *workspace,
        out,
        logits.stride(0),
        workspace.scores.stride(0),
        vocab,
        chunk,
        HAS_THRESHOLD=threshold is not None,
        CHUNKS=triton.next_power_of_2(triton.cdiv(vocab, chunk)),
        BLOCK=_BLOCK,
        num_warps=4,
    )
    return out
