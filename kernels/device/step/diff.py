"""Keeping the permanent rows' state up to date with one host-to-device copy a step."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..checks import check, check_same_device

_PROGRAMS = 32
_BLOCK = 512


@triton.jit
def _apply_diff_kernel(state_ptr, diff_ptr, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    """state[address_i] = value_i for diff = [n | n addresses | n values | anything].

    Grid (PROGRAMS,): the programs stride over the pairs, since n is known on the device alone.
    """
    count = tl.load(diff_ptr)
    for start in range(tl.program_id(0) * BLOCK, count, PROGRAMS * BLOCK):
        pair = start + tl.arange(0, BLOCK)
        inside = pair < count
        address = tl.load(diff_ptr + 1 + pair, mask=inside, other=0)
        value = tl.load(diff_ptr + 1 + count + pair, mask=inside, other=0)
        tl.store(state_ptr + address, value, mask=inside)


def apply_diff(state: Tensor, diff: Tensor) -> None:
    """See `reference.apply_diff`."""
    check("state", state, dim=1, dtype=torch.int32)
    check("diff", diff, dim=1, dtype=torch.int32)
    check_same_device(state=state, diff=diff)
    _apply_diff_kernel[(_PROGRAMS,)](state, diff, PROGRAMS=_PROGRAMS, BLOCK=_BLOCK, num_warps=4)
