"""The draw: one token from each row of logits.

Both forms sample the same distribution, softmax(logits), as a pure function of (seed, choice, position).
A row without a usable distribution (all tokens removed, or NaN or +inf among the logits) gives -1.
"""

import torch
from torch import Tensor

from .philox import draw_uniform, draw_uniform_row

NO_TOKEN = -1
"""The draw's answer for a row that has no distribution."""

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: their quotients leave float32's range, and their limit is greedy."""

_BLOCK = 256
# Divides the vocabularies of most models.
_GREEDY_BLOCK = 128


def draw_greedy(logits: Tensor) -> Tensor:
    """Returns the most likely token of each row, [R] int64; the lowest id among equals."""
    num_rows, vocab = logits.shape
    if vocab % _GREEDY_BLOCK:
        best, tokens = logits.max(-1)
        return torch.where(best.isfinite(), tokens, NO_TOKEN)
    # An argmax is scalar on a CPU and a maximum is not: find the block first, then the token in it.
    blocks = logits.view(num_rows, -1, _GREEDY_BLOCK)
    best, block = blocks.amax(-1).max(-1, keepdim=True)
    inside = blocks.gather(1, block.unsqueeze(2).expand(-1, 1, _GREEDY_BLOCK)).squeeze(1)
    tokens = block * _GREEDY_BLOCK + inside.argmax(-1, keepdim=True)
    return torch.where(best.isfinite(), tokens, NO_TOKEN).squeeze(1)


def draw_inverse_cdf(logits: Tensor, seed: Tensor, choice: Tensor, position: Tensor) -> Tensor:
    """Returns a token of each row, [R] int64, by inverting the distribution at one uniform.

    The token is the first, in the order of ids, at which the cumulated probability exceeds the uniform.

    Args:
        logits: [R, vocab] float32.
        seed, choice, position: [R] int64.
    """
    num_rows, vocab = logits.shape
    num_blocks = (vocab + _BLOCK - 1) // _BLOCK
    best = logits.amax(-1, keepdim=True)
    weights = logits.new_zeros(num_rows, num_blocks * _BLOCK)
    torch.sub(logits, best, out=weights[:, :vocab]).exp_()
    # Two levels, blocks and then tokens, since a cumulated sum over the vocabulary is far slower than a sum.
    blocks = weights.view(num_rows, num_blocks, _BLOCK)
    upper = blocks.sum(-1).cumsum(-1, dtype=torch.float64)
    target = draw_uniform(seed, choice, position).unsqueeze(1) * upper[:, -1:]
    block = _first_above(upper, target)
    before = torch.where(block > 0, upper.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = blocks.gather(1, block.unsqueeze(2).expand(-1, 1, _BLOCK)).squeeze(1)
    offset = _first_above(inside.cumsum(-1, dtype=torch.float64), target - before)
    tokens = (block * _BLOCK + offset).squeeze(1)
    return torch.where(best.squeeze(1).isfinite(), tokens, NO_TOKEN)


def draw_gumbel(logits: Tensor, seed: Tensor, choice: Tensor, position: Tensor) -> Tensor:
    """Returns a token of each row, [R] int64, as the argmax of logits plus Gumbel noise.

    Needs one uniform for each token but no sum over the vocabulary. Arguments as in `draw_inverse_cdf`.

    Source: Gumbel 1954; Maddison et al. 2014, "A* sampling".
    """
    uniform = draw_uniform_row(seed, choice, position, logits.shape[1])
    noise = -torch.log(-torch.log1p(-uniform))
    tokens = (logits + noise).argmax(-1)
    return torch.where(logits.amax(-1).isfinite(), tokens, NO_TOKEN)


def _first_above(cumulated: Tensor, target: Tensor) -> Tensor:
    """The first index [R, 1] at which an ascending row exceeds its target, or its last step if none does."""
    index = torch.searchsorted(cumulated, target, right=True)
    # Rounding can leave the target at the row's total: the last entry that added anything is meant then.
    last_step = torch.searchsorted(cumulated, cumulated[:, -1:].contiguous())
    # A row of NaN has neither; its index only has to be one.
    return torch.minimum(index, last_step).clamp_(max=cumulated.shape[1] - 1)


def draw_tokens(
    logits: Tensor,
    rows: Tensor,
    positions: Tensor,
    temperature: Tensor,
    seed: Tensor,
    choice: Tensor,
    *,
    threshold: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Returns a token of each line, [S] int64: the most likely one of greedy rows, a Gumbel draw of others.

    Args:
        logits: [S, vocab].
        rows: [S] int64, the permanent row of each line; -1 for padding, which gives -1.
        positions: [S] int64, the position of the token to be drawn.
        temperature: [num_rows] float32.
        seed, choice: [num_rows] int64.
        threshold: [S] float32, from `find_threshold`: smaller logits are not drawn.
    """
    wide = logits.float()
    tokens = draw_greedy(wide)
    heat = temperature[rows].unsqueeze(1)
    if threshold is not None:
        wide = wide.masked_fill(wide < threshold.unsqueeze(1), float("-inf"))
    tempered = (wide - wide.amax(-1, keepdim=True)) / heat.clamp(min=GREEDY_BELOW)
    drawn = draw_gumbel(tempered, seed[rows], choice[rows], positions)
    tokens = torch.where(heat.squeeze(1) < GREEDY_BELOW, tokens, drawn)
    tokens = torch.where(rows < 0, NO_TOKEN, tokens)
    return tokens if out is None else out.copy_(tokens)
