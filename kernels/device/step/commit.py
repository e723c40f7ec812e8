"""Taking drawn tokens into the permanent rows, on the device."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..checks import check, check_same_device, check_shape

_BLOCK = 128


@triton.jit(do_not_specialize=["num_lines"])
def _commit_kernel(
    tokens_ptr, rows_ptr, positions_ptr, last_token_ptr, recent_ptr, counts_ptr, slot_ptr,
    num_lines, recent_stride, counts_stride,
    WIDTH: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid (ceil(num_lines / BLOCK),), one thread a line. No two lines are of one row."""
    line = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = line < num_lines
    row = tl.load(rows_ptr + line, mask=inside, other=-1)
    inside = row >= 0
    token = tl.load(tokens_ptr + line, mask=inside, other=-1)
    position = tl.load(positions_ptr + line, mask=inside, other=0)
    tl.store(last_token_ptr + row, token.to(tl.int32), mask=inside)
    drawn = inside & (token >= 0)
    tl.store(recent_ptr + row * recent_stride + position % WIDTH, token.to(tl.int32), mask=drawn)
    if COUNT:
        slot = tl.load(slot_ptr + row, mask=drawn, other=-1).to(tl.int64)
        counted = drawn & (slot >= 0)
        at = counts_ptr + slot * counts_stride + token
        tl.store(at, tl.load(at, mask=counted, other=0) + 2, mask=counted)


def commit_tokens(
    tokens: Tensor,
    rows: Tensor,
    positions: Tensor,
    last_token: Tensor,
    recent: Tensor,
    *,
    token_counts: Tensor | None = None,
    slot: Tensor | None = None,
) -> None:
    """See `reference.commit_tokens`."""
    num_lines = tokens.shape[0]
    for name, tensor in (("tokens", tokens), ("rows", rows), ("positions", positions)):
        check(name, tensor, dim=1, dtype=torch.int64)
        check_shape(name, tensor, (num_lines,))
    check("last_token", last_token, dim=1, dtype=torch.int32)
    check("recent", recent, dim=2, dtype=torch.int32)
    if token_counts is not None:
        check("token_counts", token_counts, dim=2, dtype=torch.int32)
        if slot is None:
            raise ValueError("slot must be given together with token_counts")
        check("slot", slot, dim=1, dtype=torch.int32)
    check_same_device(
        tokens=tokens, rows=rows, last_token=last_token, recent=recent, token_counts=token_counts
    )
    _commit_kernel[(triton.cdiv(num_lines, _BLOCK),)](
        tokens,
        rows,
        positions,
        last_token,
        recent,
        recent if token_counts is None else token_counts,
        recent if slot is None else slot,
        num_lines,
        recent.stride(0),
        0 if token_counts is None else token_counts.stride(0),
        WIDTH=recent.shape[1],
        COUNT=token_counts is not None,
        BLOCK=_BLOCK,
        num_warps=4,
    )
