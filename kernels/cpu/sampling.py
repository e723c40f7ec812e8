"""The draw with as few passes over the vocabulary as the parameters allow."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..reference import NO_TOKEN, SamplingColumns, apply_rules, draw_uniform, filter_logits
from .native import native_ops

_BLOCK = 256


def apply_bitmask(logits: Tensor, lines: Tensor, mask: Tensor) -> None:
    """Removes the tokens whose bit is 0, in place.

    Args:
        logits: [R, vocab] float32.
        lines: [G] int64, the line of logits that each line of the mask is for; none twice.
        mask: [G, ceil(vocab / 32)] int32; bit i of word w is that of token 32 * w + i.
    """
    words = mask.numpy().view(np.uint8)
    bits = np.unpackbits(words, axis=1, count=logits.shape[1], bitorder="little")
    removed = torch.from_numpy(bits).logical_not_()
    for line, row in zip(lines.tolist(), removed.view(torch.bool), strict=True):
        logits[line].masked_fill_(row, float("-inf"))


def sample(
    logits: Tensor, rows: Tensor, positions: Tensor, columns: SamplingColumns, *, greedy: NDArray[np.bool_]
) -> Tensor:
    """Returns one token for each line of logits, [R] int64, or -1 for a line without a distribution.

    Args:
        logits: [R, vocab] of any float dtype, left as they are.
        rows: [R] int64, the permanent row of each line; no row twice.
        positions: [R] int64, the position of the token to be drawn, prompt included.
        greedy: [R] on the host, which lines are greedy.
    """
    logits = apply_rules(logits, rows, positions, columns)
    if greedy.all():
        return draw_greedy(logits)
    if not greedy.any():
        return _draw(logits, rows, positions, columns)
    tokens = rows.new_empty(rows.shape)
    cold, warm = (torch.from_numpy(mask.nonzero()[0]) for mask in (greedy, ~greedy))
    tokens[cold] = draw_greedy(logits[cold])
    tokens[warm] = _draw(logits[warm], rows[warm], positions[warm], columns)
    return tokens


def _draw(logits: Tensor, rows: Tensor, positions: Tensor, columns: SamplingColumns) -> Tensor:
    temperature = columns.temperature[rows]
    if columns.min_p is not None or columns.top_k is not None or columns.top_p is not None:
        logits = filter_logits(logits, rows, columns)
        temperature = torch.ones_like(temperature)  # filtered logits are divided by it already
    return draw_inverse_cdf(logits, temperature, columns.seed[rows], columns.choice[rows], positions)


def draw_greedy(logits: Tensor) -> Tensor:
    """Returns the most likely token of each row, [R] int64; the lowest id among equals, -1 for NaN or inf."""
    vocab = logits.shape[1]
    whole = vocab - vocab % _BLOCK
    # A maximum is vectorized and an argmax is not: find the block by maxima and the token within it.
    blocks = logits[:, :whole].unflatten(1, (-1, _BLOCK)).amax(-1)
    if whole < vocab:
        blocks = torch.cat((blocks, logits[:, whole:].amax(-1, keepdim=True)), -1)
    best, block = blocks.max(-1)
    return torch.where(best.isfinite(), _within(logits, block, best), NO_TOKEN)


def _within(logits: Tensor, block: Tensor, best: Tensor) -> Tensor:
    ids = (block.unsqueeze(1) * _BLOCK) + torch.arange(_BLOCK)
    values = logits.gather(1, ids.clamp(max=logits.shape[1] - 1))
    return ids.gather(1, (values == best.unsqueeze(1)).int().argmax(-1, keepdim=True)).squeeze(1)


def draw_inverse_cdf(
    logits: Tensor, temperature: Tensor, seed: Tensor, choice: Tensor, position: Tensor
) -> Tensor:
    """Returns a token of each row, [R] int64, by inverting softmax(logits / temperature) at one uniform.

    -1 as above.

    Args:
        logits: [R, vocab] of any float dtype.
        temperature: [R] float32, not greedy.
        seed, choice, position: [R] int64.
    """
    if logits.dtype in (torch.bfloat16, torch.float32) and (kernel := native_ops()):
        return kernel.draw(logits.contiguous(), temperature, seed, choice, position)
    vocab = logits.shape[1]
    # The softmax takes the maximum off by itself, and a temperature that is not greedy cannot overflow.
    if not bool((temperature == 1).all()):
        logits = logits / temperature.unsqueeze(1)
    probs = logits.softmax(-1, dtype=torch.float32)
    whole = vocab - vocab % _BLOCK
    sums = probs[:, :whole].unflatten(1, (-1, _BLOCK)).sum(-1)
    if whole < vocab:
        sums = torch.cat((sums, probs[:, whole:].sum(-1, keepdim=True)), -1)
    upper = sums.cumsum(-1, dtype=torch.float64)
    target = draw_uniform(seed, choice, position).unsqueeze(1) * upper[:, -1:]
    block = _first_above(upper, target)
    before = torch.where(block > 0, upper.gather(1, (block - 1).clamp(min=0)), 0.0)
    ids = block * _BLOCK + torch.arange(_BLOCK)
    inside = torch.where(ids < vocab, probs.gather(1, ids.clamp(max=vocab - 1)), 0.0)
    offset = _first_above(inside.cumsum(-1, dtype=torch.float64), target - before)
    tokens = (block * _BLOCK + offset).squeeze(1)
    return torch.where(upper[:, -1].isfinite(), tokens, NO_TOKEN)


def _first_above(cumulated: Tensor, target: Tensor) -> Tensor:
    """The first index [R, 1] at which an ascending row exceeds its target, or its last step if none does."""
    index = torch.searchsorted(cumulated, target, right=True)
    # Rounding can leave the target at the row's total: the last entry that added anything is meant then.
    last_step = torch.searchsorted(cumulated, cumulated[:, -1:].contiguous())
    return torch.minimum(index, last_step)
