"""Keeping the permanent rows' state up to date with one host-to-device copy a step."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..checks import check, check_same_device

_PROGRAMS = 32
_BLOCK = 512


@triton.jit(do_not_specialize=["capacity"])
def _apply_diff_kernel(state_ptr, diff_ptr, capacity, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    """state[address_i] = value_i for the n pairs in diff = [n | addresses, capacity | values, capacity].

    Grid (PROGRAMS,): the programs stride over the pairs, since n is known on the device alone.
    """
    count = tl.load(diff_ptr)
    for start in range(tl.program_id(0) * BLOCK, count, PROGRAMS * BLOCK):
        pair = start + tl.arange(0, BLOCK)
        inside = pair < count
        address = tl.load(diff_ptr + 1 + pair, mask=inside, other=0)
        value = tl.load(diff_ptr + 1 + capacity + pair, mask=inside, other=0)
        tl.store(state_ptr + address, value, mask=inside)


def apply_diff(state: Tensor, diff: Tensor) -> None:
    """See `reference.apply_diff`."""
    check("state", state, dim=1, dtype=torch.int32)
    check("diff", diff, dim=1, dtype=torch.int32)
    if diff.shape[0] % 2 == 0:
        raise ValueError(f"diff must have 1 + 2 * capacity words, it has {diff.shape[0]}")
    check_same_device(state=state, diff=diff)
    _apply_diff_kernel[(_PROGRAMS,)](
        state, diff, (diff.shape[0] - 1) // 2, PROGRAMS=_PROGRAMS, BLOCK=_BLOCK, num_warps=4
    )
