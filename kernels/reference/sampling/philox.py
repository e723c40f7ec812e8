"""Random bits as a pure function of (seed, choice, position): the Philox4x32-10 counter generator.

The key is the request's 64-bit seed. The counter's words are

    0  position of the drawn token in its sequence (prompt included)
    1  choice, the index of the sample among the n of its request
    2  stream, which use the bits are for
    3  index within the stream

so no state is kept anywhere, and a draw depends on nothing but its own coordinates.

Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
"""

import torch
from torch import Tensor

STREAM_UNIFORM = 0
"""One uniform a draw, for inverse transform sampling."""
STREAM_GUMBEL = 1
"""One uniform a vocabulary entry: entry v takes word v % 4 of index v // 4."""

_MASK = 0xFFFFFFFF
_MULTIPLIER = (0xD2511F53, 0xCD9E8D57)
_KEY_STEP = (0x9E3779B9, 0xBB67AE85)
_NUM_ROUNDS = 10


def philox4x32(
    seed: Tensor, counter: tuple[Tensor, Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns four words of 32 random bits for each key and counter, as int64 in [0, 2^32).

    Args:
        seed: [...] int64, the 64 bits of the key.
        counter: four int64 tensors whose shapes broadcast with the seed's; their low 32 bits count.
    """
    even = torch.stack(torch.broadcast_tensors(counter[0] & _MASK, counter[2] & _MASK))
    odd = torch.stack(torch.broadcast_tensors(counter[1] & _MASK, counter[3] & _MASK))
    pair = (2,) + (1,) * (even.dim() - 1)
    multiplier = torch.tensor(_MULTIPLIER, device=seed.device).view(pair)
    step = torch.tensor(_KEY_STEP, device=seed.device).view(pair)
    key = torch.stack((seed & _MASK, (seed >> 32) & _MASK))
    for _ in range(_NUM_ROUNDS):
        # The product wraps in int64; masking after the shift leaves the unsigned high word all the same.
        product = even * multiplier
        even = ((product >> 32) & _MASK).flip(0) ^ odd ^ key
        odd = (product & _MASK).flip(0)
        key = (key + step) & _MASK
    return even[0], odd[0], even[1], odd[1]


def draw_uniform(seed: Tensor, choice: Tensor, position: Tensor) -> Tensor:
    """Returns one float64 uniform in [0, 1) with 53 random bits for each row, [R].

    Args:
        seed: [R] int64. choice: [R] int64. position: [R] int64.
    """
    zero = torch.zeros_like(seed)
    high, low, _, _ = philox4x32(seed, (position, choice, zero + STREAM_UNIFORM, zero))
    return ((high >> 5) * 2**26 + (low >> 6)).double() / 2**53


def draw_uniform_row(seed: Tensor, choice: Tensor, position: Tensor, length: int) -> Tensor:
    """Returns `length` float64 uniforms in (0, 1) with 32 random bits for each row, [R, length].

    Arguments as in `draw_uniform`.
    """
    index = torch.arange((length + 3) // 4, device=seed.device).unsqueeze(0)
    stream = torch.full_like(index, STREAM_GUMBEL)
    words = philox4x32(seed.unsqueeze(1), (position.unsqueeze(1), choice.unsqueeze(1), stream, index))
    bits = torch.stack(words, dim=-1).flatten(1)[:, :length]
    return (bits.double() + 0.5) / 2**32
