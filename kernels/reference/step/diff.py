"""Keeping the permanent rows' state up to date with one host-to-device copy a step."""

from torch import Tensor


def apply_diff(state: Tensor, diff: Tensor) -> None:
    """Writes words into `state`, in place.

    All columns of all rows live in one tensor of 32-bit words, of which each column is a view (a 64-bit
    column takes two words an entry). A step's changes are then (address, value) pairs.

    Args:
        state: [num_words] int32.
        diff: int32: the number n of pairs, then n addresses, no one twice, then n values. What follows is not
            read, so that a buffer serves any n.
    """
    count = int(diff[0])
    addresses = diff[1 : 1 + count].long()
    state[addresses] = diff[1 + count : 1 + 2 * count]
