"""Penalties on tokens that a sequence has used already."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...reference import Penalties
from ..checks import check, check_same_device, check_shape

_BLOCK = 2048


@triton.jit
def _penalties_kernel(
    logits_ptr, rows_ptr, counts_ptr, slot_ptr, repetition_ptr, frequency_ptr, presence_ptr,
    logits_stride, counts_stride, vocab, BLOCK: tl.constexpr,
):  # fmt: skip
    """x = (x > 0 ? x / repetition : x * repetition if seen) - frequency * times - presence * (times > 0).

    Grid (num_lines, ceil(vocab / BLOCK)); rows without a slot end at once. A count is twice the times in the
    output, plus one for the prompt.
    """
    line = tl.program_id(0).to(tl.int64)
    row = tl.load(rows_ptr + line)
    if row < 0:
        return
    slot = tl.load(slot_ptr + row).to(tl.int64)
    if slot < 0:
        return
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = token < vocab
    count = tl.load(counts_ptr + slot * counts_stride + token, mask=inside, other=0)
    at = logits_ptr + line * logits_stride + token
    changed = inside & (count > 0)
    x = tl.load(at, mask=changed, other=0.0)
    repetition = tl.load(repetition_ptr + row)
    times = (count >> 1).to(tl.float32)
    x = tl.where(x > 0, x / repetition, x * repetition)
    x -= tl.load(frequency_ptr + row) * times
    x -= tl.load(presence_ptr + row) * (times > 0).to(tl.float32)
    tl.store(at, x, mask=changed)


def apply_penalties(logits: Tensor, rows: Tensor, penalties: Penalties) -> None:
    """See `reference.apply_penalties`."""
    check("logits", logits, dim=2, dtype=torch.float32)
    check("rows", rows, dim=1, dtype=torch.int64)
    check_shape("rows", rows, (logits.shape[0],))
    check("token_counts", penalties.token_counts, dim=2, dtype=torch.int32)
    check("slot", penalties.slot, dim=1, dtype=torch.int32)
    for name in ("repetition", "frequency", "presence"):
        check(name, getattr(penalties, name), dim=1, dtype=torch.float32)
    check_same_device(logits=logits, rows=rows, **penalties._asdict())
    num_lines, vocab = logits.shape
    _penalties_kernel[(num_lines, triton.cdiv(vocab, _BLOCK))](
        logits, rows, *penalties, logits.stride(0), penalties.token_counts.stride(0), vocab, BLOCK=_BLOCK
    )
