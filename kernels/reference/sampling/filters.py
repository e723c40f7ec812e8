"""Filters that narrow a distribution before the draw: min_p, top_k, top_p.

All three are thresholds on the logit, so tokens that tie with the least likely one kept are kept too and
no result depends on a sort's order. Removed tokens become -inf.
"""

import torch
from torch import Tensor

from .draw import GREEDY_BELOW

_FIRST_CANDIDATES = 256


def apply_min_p(logits: Tensor, min_p: Tensor) -> None:
    """Removes tokens less likely than `min_p` times the most likely one, in place.

    Args:
        logits: [R, vocab] float32.
        min_p: [R] float32 in [0, 1], 0 is off.

    Source: Nguyen et al. 2024, "Turning up the heat: min-p sampling".
    """
    _remove_below(logits, logits.amax(-1) + min_p.log())


def apply_top_k(logits: Tensor, top_k: Tensor) -> None:
    """Removes tokens less likely than the `top_k`-th most likely one, in place.

    Args:
        logits: [R, vocab] float32.
        top_k: [R] int32; 0, negative and values from vocab on are off.
    """
    lines = ((top_k > 0) & (top_k < logits.shape[1])).nonzero().squeeze(1)
    if lines.numel() == 0:
        return
    wanted = top_k[lines].long()
    largest = _lines(logits, lines).topk(int(wanted.max())).values
    threshold = logits.new_full(top_k.shape, float("-inf"))
    threshold[lines] = largest.gather(1, (wanted - 1).unsqueeze(1)).squeeze(1)
    _remove_below(logits, threshold)


def apply_top_p(logits: Tensor, top_p: Tensor) -> None:
    """Keeps the smallest set of most likely tokens whose probabilities reach `top_p`, in place.

    The probabilities are those of the tokens that earlier filters left. One token stays in any case.

    Args:
        logits: [R, vocab] float32.
        top_p: [R] float32 in [0, 1], 1 is off.

    Source: Holtzman et al. 2019, "The curious case of neural text degeneration".
    """
    pending = (top_p < 1).nonzero().squeeze(1)
    if pending.numel() == 0:
        return
    threshold = logits.new_full(top_p.shape, float("-inf"))
    num_candidates = _FIRST_CANDIDATES
    vocab = logits.shape[1]
    # A nucleus is small as a rule: look at few candidates first and at eight times more where that fails.
    while pending.numel() > 0:
        values = _lines(logits, pending)
        largest = values.topk(min(num_candidates, vocab)).values
        probs = (largest - values.logsumexp(-1, keepdim=True)).exp()
        mass_before = probs.cumsum(-1) - probs
        num_kept = (mass_before < top_p[pending].unsqueeze(1)).sum(-1).clamp_(min=1)
        found = largest.gather(1, (num_kept - 1).unsqueeze(1)).squeeze(1)
        complete = (num_kept < largest.shape[1]) | (largest.shape[1] == vocab)
        threshold[pending[complete]] = found[complete]
        pending = pending[~complete]
        num_candidates *= 8
    _remove_below(logits, threshold)


def _lines(logits: Tensor, lines: Tensor) -> Tensor:
    """The given lines, without a copy when they are all of them."""
    return logits if lines.numel() == logits.shape[0] else logits[lines]


def _remove_below(logits: Tensor, threshold: Tensor) -> None:
    """Removes what lies below `threshold` [R], -inf for a line that stays whole."""
    lowest = torch.finfo(logits.dtype).min
    # Twice 1e38 takes the least negative difference to -inf and leaves 0 at 0. On a CPU this is six times
    # faster than a masked fill, whose inner loop is scalar.
    below = (logits - threshold.clamp(min=lowest).unsqueeze(1)).clamp_(max=0).mul_(1e38).mul_(1e38)
    logits += below


def find_threshold(
    logits: Tensor,
    rows: Tensor,
    temperature: Tensor,
    *,
    min_p: Tensor | None = None,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    temperature_last: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Returns the least logit of each line that min_p, top_k and top_p together keep, [S] float32.

    All three keep the most likely tokens, so one number says what stays. Lines of greedy rows, of rows
    without filter and of padding get -inf.

    Args:
        logits: [S, vocab].
        rows: [S] int64, the permanent row of each line, or -1.
        temperature, min_p, top_k, top_p, temperature_last: [num_rows], as in `SamplingColumns`.
    """
    heat = temperature[rows]
    filter_heat = heat if temperature_last is None else torch.where(temperature_last[rows], 1.0, heat)
    wide = logits.float()
    tempered = (wide - wide.amax(-1, keepdim=True)) / filter_heat.clamp(min=GREEDY_BELOW).unsqueeze(1)
    if min_p is not None:
        apply_min_p(tempered, min_p[rows])
    if top_k is not None:
        apply_top_k(tempered, top_k[rows])
    if top_p is not None:
        apply_top_p(tempered, top_p[rows])
    kept = wide.masked_fill(tempered == float("-inf"), float("inf")).amin(-1)
    filtered = (rows >= 0) & (heat >= GREEDY_BELOW) & (tempered == float("-inf")).any(-1)
    threshold = torch.where(filtered, kept, float("-inf"))
    return threshold if out is None else out.copy_(threshold)
