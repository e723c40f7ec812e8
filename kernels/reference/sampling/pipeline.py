"""From logits to tokens: every sampling rule in its one order.

    grammar                                          by the caller, who has the mask: `apply_bitmask`
    allowed ids, bias, banned ids, banned words      what the request rules in or out
    repetition, frequency, presence penalty          what it has said already
    temperature                                      or behind the filters, with temperature_last
    min_p, top_k, top_p                              what is likely enough
    draw                                             greedy at temperature 0

A rule that no row uses is None and costs nothing.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .draw import GREEDY_BELOW, draw_greedy, draw_inverse_cdf
from .filters import apply_min_p, apply_top_k, apply_top_p
from .penalties import Penalties, apply_penalties
from .token_lists import TokenLists, add_logit_bias, allow_only, ban_tokens, ban_words


class TokenRules(NamedTuple):
    """Rules on single tokens, by permanent row; see `token_lists` for each."""

    allowed: TokenLists | None = None
    biased: TokenLists | None = None
    bias: Tensor | None = None
    """[pool_size] float32, beside `biased`."""
    banned: TokenLists | None = None
    banned_until: Tensor | None = None
    """[pool_size] int32, beside `banned`."""
    words: TokenLists | None = None
    recent: Tensor | None = None
    """[num_rows, width] int32, beside `words`."""
    prompt_len: Tensor | None = None
    """[num_rows] int32, beside `words`."""


class SamplingColumns(NamedTuple):
    """Sampling parameters by permanent row; None where no row uses the rule."""

    temperature: Tensor
    """[num_rows] float32."""
    seed: Tensor
    """[num_rows] int64, all 64 bits count."""
    choice: Tensor
    """[num_rows] int64."""
    min_p: Tensor | None = None
    """[num_rows] float32, 0 is off."""
    top_k: Tensor | None = None
    """[num_rows] int32, 0 or less is off."""
    top_p: Tensor | None = None
    """[num_rows] float32, 1 is off."""
    temperature_last: Tensor | None = None
    """[num_rows] bool."""
    penalties: Penalties | None = None
    rules: TokenRules | None = None


def sample(logits: Tensor, rows: Tensor, positions: Tensor, columns: SamplingColumns) -> Tensor:
    """Returns one token for each line of logits, [R] int64, or -1 for a line without a distribution.

    Args:
        logits: [R, vocab] of any float dtype, left as they are.
        rows: [R] int64, the permanent row of each line; no row twice.
        positions: [R] int64, the position of the token to be drawn, prompt included.
    """
    logits = apply_rules(logits, rows, positions, columns)
    lines = (columns.temperature[rows] >= GREEDY_BELOW).nonzero().squeeze(1)
    if lines.numel() == 0:
        return draw_greedy(logits)
    if lines.numel() == rows.numel():
        return _draw(logits, rows, positions, columns)
    tokens = draw_greedy(logits)
    tokens[lines] = _draw(logits[lines], rows[lines], positions[lines], columns)
    return tokens


def _draw(logits: Tensor, rows: Tensor, positions: Tensor, columns: SamplingColumns) -> Tensor:
    filtered = filter_logits(logits, rows, columns)
    return draw_inverse_cdf(filtered, columns.seed[rows], columns.choice[rows], positions)


def apply_rules(logits: Tensor, rows: Tensor, positions: Tensor, columns: SamplingColumns) -> Tensor:
    """Returns the logits in float32 after token rules and penalties; a copy if any rule is on."""
    rules, penalties = columns.rules, columns.penalties
    if rules is None and penalties is None:
        return logits.float()
    logits = logits.to(torch.float32, copy=True)
    if rules is not None:
        if rules.allowed is not None:
            allow_only(logits, rows, rules.allowed)
        if rules.biased is not None and rules.bias is not None:
            add_logit_bias(logits, rows, rules.biased, rules.bias)
        if rules.banned is not None and rules.banned_until is not None:
            ban_tokens(logits, rows, positions, rules.banned, rules.banned_until)
        if rules.words is not None and rules.recent is not None and rules.prompt_len is not None:
            ban_words(logits, rows, positions, rules.words, rules.recent, rules.prompt_len)
    if penalties is not None:
        apply_penalties(logits, rows, penalties)
    return logits


def filter_logits(logits: Tensor, rows: Tensor, columns: SamplingColumns) -> Tensor:
    """Returns the logits whose softmax is drawn from: tempered, and -inf where a filter removed a token.

    Args:
        logits: [R, vocab] float32, of rows that are not greedy; left as they are.
        rows: [R] int64, the permanent row of each line.
    """
    temperature = columns.temperature[rows]
    # Filters and draw see differences alone: with the maximum at 0 no quotient overflows.
    logits = logits - logits.amax(-1, keepdim=True)
    if columns.temperature_last is None:
        logits /= temperature.unsqueeze(1)
    else:
        last = columns.temperature_last[rows]
        logits /= torch.where(last, 1.0, temperature).unsqueeze(1)
    if columns.min_p is not None:
        apply_min_p(logits, columns.min_p[rows])
    if columns.top_k is not None:
        apply_top_k(logits, columns.top_k[rows])
    if columns.top_p is not None:
        apply_top_p(logits, columns.top_p[rows])
    if columns.temperature_last is not None:
        logits /= torch.where(last, temperature, 1.0).unsqueeze(1)
    return logits
