"""From logits to tokens on the device: the rules in the order of `reference.sample`."""

from typing import NamedTuple

import torch
from torch import Tensor

from ...reference import SamplingColumns, TokenRules
from ..checks import check
from .draw import DrawWorkspace, draw_tokens, make_draw_workspace
from .penalties import apply_penalties
from .threshold import find_threshold, make_candidates
from .token_lists import add_logit_bias, allow_only, ban_tokens, ban_words


class SamplingWorkspace(NamedTuple):
    """Buffers of a sampler, allocated once."""

    logits: Tensor
    """[max_lines, vocab] float32, the logits that rules and penalties change."""
    threshold: Tensor
    """[max_lines] float32."""
    candidates: Tensor
    """See `make_candidates`."""
    draw: DrawWorkspace
    kept: Tensor
    """[pool_size] float32, scratch for allowed ids."""


def make_sampling_workspace(
    max_lines: int, vocab: int, *, pool_size: int, device: torch.device | str
) -> SamplingWorkspace:
    """Allocates what `sample` needs for at most so many lines, and that many allowed ids in all."""
    return SamplingWorkspace(
        logits=torch.empty(max_lines, vocab, dtype=torch.float32, device=device),
        threshold=torch.empty(max_lines, dtype=torch.float32, device=device),
        candidates=make_candidates(max_lines, device=device),
        draw=make_draw_workspace(max_lines, vocab, device=device),
        kept=torch.empty(pool_size, dtype=torch.float32, device=device),
    )


def sample(
    logits: Tensor,
    rows: Tensor,
    positions: Tensor,
    columns: SamplingColumns,
    *,
    workspace: SamplingWorkspace,
    out: Tensor | None = None,
) -> Tensor:
    """See `reference.sample`; draws with Gumbel noise, which gives the same distribution and other tokens.

    Args:
        rows: [S] int64, -1 for padding, which gives -1.
    """
    check("logits", logits, dim=2)
    num_lines = logits.shape[0]
    if columns.rules is not None or columns.penalties is not None:
        logits = workspace.logits[:num_lines].copy_(logits)
        if columns.rules is not None:
            _apply_rules(logits, rows, positions, columns.rules, workspace.kept)
        if columns.penalties is not None:
            apply_penalties(logits, rows, columns.penalties)
    threshold = None
    if columns.min_p is not None or columns.top_k is not None or columns.top_p is not None:
        threshold = find_threshold(
            logits,
            rows,
            columns.temperature,
            min_p=columns.min_p,
            top_k=columns.top_k,
            top_p=columns.top_p,
            temperature_last=columns.temperature_last,
            out=workspace.threshold[:num_lines],
            candidates=workspace.candidates,
        )
    return draw_tokens(
        logits,
        rows,
        positions,
        columns.temperature,
        columns.seed,
        columns.choice,
        threshold=threshold,
        out=out,
        workspace=workspace.draw,
    )


def _apply_rules(logits: Tensor, rows: Tensor, positions: Tensor, rules: TokenRules, kept: Tensor) -> None:
    if rules.allowed is not None:
        allow_only(logits, rows, rules.allowed, kept=kept[: rules.allowed.pool.shape[0]])
    if rules.biased is not None and rules.bias is not None:
        add_logit_bias(logits, rows, rules.biased, rules.bias)
    if rules.banned is not None and rules.banned_until is not None:
        ban_tokens(logits, rows, positions, rules.banned, rules.banned_until)
    if rules.words is not None and rules.recent is not None and rules.prompt_len is not None:
        ban_words(logits, rows, positions, rules.words, rules.recent, rules.prompt_len)
