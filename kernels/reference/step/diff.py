"""Keeping the permanent rows' state up to date with one host-to-device copy a step."""

from torch import Tensor


def apply_diff(state: Tensor, diff: Tensor) -> None:
    """Writes words into `state`, in place.

    All columns of all rows live in one tensor of 32-bit words, of which each column is a view (a 64-bit
    column takes two words an entry). A step's changes are then (address, value) pairs.

    Args:
        state: [num_words] int32.
        diff: [1 + 2 * capacity] int32: the number n of pairs, then room for `capacity` addresses, then for as
            many values. The first n of each count. No address twice.
    """
    count, capacity = int(diff[0]), (diff.numel() - 1) // 2
    addresses = diff[1 : 1 + count].long()
    state[addresses] = diff[1 + capacity : 1 + capacity + count]
