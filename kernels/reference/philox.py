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
    key0, key1 = seed & _MASK, (seed >> 32) & _MASK
    c0, c1, c2, c3 = (word & _MASK for word in counter)
    for _ in range(_NUM_ROUNDS):
        # The products wrap in int64; masking after the shift leaves the unsigned high word all the same.
        product0, product1 = c0 * _MULTIPLIER[0], c2 * _MULTIPLIER[1]
        c0, c1 = ((product1 >> 32) & _MASK) ^ c1 ^ key0, product1 & _MASK
        c2, c3 = ((product0 >> 32) & _MASK) ^ c3 ^ key1, product0 & _MASK
        key0, key1 = (key0 + _KEY_STEP[0]) & _MASK, (key1 + _KEY_STEP[1]) & _MASK
    return c0, c1, c2, c3


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
