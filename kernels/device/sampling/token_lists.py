"""Rules on single tokens of single rows: bias, allowed ids, ids banned for a while, banned words."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...reference import TokenLists
from ..checks import check, check_same_device, check_shape

_BLOCK = 1024


@triton.jit
def _allow_only_kernel(
    logits_ptr, rows_ptr, start_ptr, count_ptr, pool_ptr, kept_ptr, logits_stride, vocab, BLOCK: tl.constexpr
):
    """logits = -inf except at the row's listed tokens.

    Grid (num_lines,). The listed logits wait in `kept`, one place for each place of the pool, while the line
    is overwritten.
    """
    line = tl.program_id(0).to(tl.int64)
    row = tl.load(rows_ptr + line)
    if row < 0:
        return
    count = tl.load(count_ptr + row)
    if count == 0:
        return
    first = tl.load(start_ptr + row)
    line_ptr = logits_ptr + line * logits_stride
    for begin in range(0, count, BLOCK):
        entry = begin + tl.arange(0, BLOCK)
        inside = entry < count
        token = tl.load(pool_ptr + first + entry, mask=inside, other=0)
        tl.store(kept_ptr + first + entry, tl.load(line_ptr + token, mask=inside), mask=inside)
    tl.debug_barrier()
    for begin in range(0, vocab, BLOCK):
        token = begin + tl.arange(0, BLOCK)
        tl.store(line_ptr + token, tl.full((BLOCK,), float("-inf"), tl.float32), mask=token < vocab)
    tl.debug_barrier()
    for begin in range(0, count, BLOCK):
        entry = begin + tl.arange(0, BLOCK)
        inside = entry < count
        token = tl.load(pool_ptr + first + entry, mask=inside, other=0)
        tl.store(line_ptr + token, tl.load(kept_ptr + first + entry, mask=inside), mask=inside)


@triton.jit
def _change_listed_kernel(
    logits_ptr, rows_ptr, start_ptr, count_ptr, pool_ptr, value_ptr, positions_ptr, logits_stride,
    BAN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """logits += value at the row's listed tokens, or with BAN: = -inf where value > the line's position.

    Grid (num_lines,). A list names a token once when it adds.
    """
    line = tl.program_id(0).to(tl.int64)
    row = tl.load(rows_ptr + line)
    if row < 0:
        return
    count = tl.load(count_ptr + row)
    first = tl.load(start_ptr + row)
    for begin in range(0, count, BLOCK):
        entry = begin + tl.arange(0, BLOCK)
        inside = entry < count
        token = tl.load(pool_ptr + first + entry, mask=inside, other=0)
        value = tl.load(value_ptr + first + entry, mask=inside, other=0)
        at = logits_ptr + line * logits_stride + token
        if BAN:
            banned = inside & (value > tl.load(positions_ptr + line))
            tl.store(at, tl.full((BLOCK,), float("-inf"), tl.float32), mask=banned)
        else:
            tl.store(at, tl.load(at, mask=inside, other=0.0) + value, mask=inside)


@triton.jit
def _ban_words_kernel(
    logits_ptr, rows_ptr, positions_ptr, start_ptr, count_ptr, pool_ptr, recent_ptr, prompt_len_ptr,
    logits_stride, recent_stride, WIDTH: tl.constexpr, WIDTH_BLOCK: tl.constexpr,
):  # fmt: skip
    """logits = -inf at the last token of each word whose first tokens are the row's latest output.

    Grid (num_lines,): a program walks over its row's words, each stored as length and tokens, and compares a
    word's first tokens at once with as many recent ones.
    """
    line = tl.program_id(0).to(tl.int64)
    row = tl.load(rows_ptr + line)
    if row < 0:
        return
    position = tl.load(positions_ptr + line)
    prompt_len = tl.load(prompt_len_ptr + row)
    at = tl.load(start_ptr + row)
    end = at + tl.load(count_ptr + row)
    index = tl.arange(0, WIDTH_BLOCK)
    while at < end:
        length = tl.load(pool_ptr + at)
        start = position - (length - 1)
        inside = index < length - 1
        word = tl.load(pool_ptr + at + 1 + index, mask=inside, other=0)
        column = tl.maximum(start + index, 0) % WIDTH
        recent = tl.load(recent_ptr + row * recent_stride + column, mask=inside, other=0)
        differs = tl.sum((inside & (word != recent)).to(tl.int32), axis=0)
        if (differs == 0) & (start >= prompt_len):
            last = tl.load(pool_ptr + at + length)
            tl.store(logits_ptr + line * logits_stride + last, float("-inf"))
        at += 1 + length


def allow_only(logits: Tensor, rows: Tensor, allowed: TokenLists, *, kept: Tensor | None = None) -> None:
    """See `reference.allow_only`; `kept` [pool_size] float32 is scratch, to be given while capturing."""
    _check(logits, rows, allowed)
    if kept is None:
        if logits.is_cuda and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("kept must be passed in while a graph is captured")
        kept = torch.empty(allowed.pool.shape, dtype=torch.float32, device=logits.device)
    check("kept", kept, dim=1, dtype=torch.float32)
    check_shape("kept", kept, tuple(allowed.pool.shape))
    _allow_only_kernel[(rows.shape[0],)](
        logits, rows, *allowed, kept, logits.stride(0), logits.shape[1], BLOCK=_BLOCK
    )


def add_logit_bias(logits: Tensor, rows: Tensor, biased: TokenLists, bias: Tensor) -> None:
    """See `reference.add_logit_bias`."""
    _check(logits, rows, biased)
    check("bias", bias, dim=1, dtype=torch.float32)
    check_shape("bias", bias, tuple(biased.pool.shape))
    _change_listed_kernel[(rows.shape[0],)](
        logits, rows, *biased, bias, rows, logits.stride(0), BAN=False, BLOCK=_BLOCK
    )


def ban_tokens(logits: Tensor, rows: Tensor, positions: Tensor, banned: TokenLists, until: Tensor) -> None:
    """See `reference.ban_tokens`."""
    _check(logits, rows, banned)
    check("positions", positions, dim=1, dtype=torch.int64)
    check("until", until, dim=1, dtype=torch.int32)
    check_shape("until", until, tuple(banned.pool.shape))
    _change_listed_kernel[(rows.shape[0],)](
        logits, rows, *banned, until, positions, logits.stride(0), BAN=True, BLOCK=_BLOCK
    )


def ban_words(
    logits: Tensor, rows: Tensor, positions: Tensor, words: TokenLists, recent: Tensor, prompt_len: Tensor
) -> None:
    """See `reference.ban_words`."""
    _check(logits, rows, words)
    check("positions", positions, dim=1, dtype=torch.int64)
    check("recent", recent, dim=2, dtype=torch.int32)
    check("prompt_len", prompt_len, dim=1, dtype=torch.int32)
    width = recent.shape[1]
    _ban_words_kernel[(rows.shape[0],)](
        logits,
        rows,
        positions,
        *words,
        recent,
        prompt_len,
        logits.stride(0),
        recent.stride(0),
        WIDTH=width,
        WIDTH_BLOCK=triton.next_power_of_2(width),
        num_warps=1,
    )


def _check(logits: Tensor, rows: Tensor, lists: TokenLists) -> None:
    check("logits", logits, dim=2, dtype=torch.float32)
    check("rows", rows, dim=1, dtype=torch.int64)
    check_shape("rows", rows, (logits.shape[0],))
    for name, tensor in lists._asdict().items():
        check(name, tensor, dim=1, dtype=torch.int32)
    check_same_device(logits=logits, rows=rows, start=lists.start, count=lists.count, pool=lists.pool)
