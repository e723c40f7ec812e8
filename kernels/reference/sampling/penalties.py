"""Penalties on tokens that a sequence has used already.

Counts live in a pool that only rows with penalties take a slot of: `token_counts` [num_slots, vocab] int32
holds for each token twice the number of times it stands in the output, plus one if it stands in the prompt.
"""

from typing import NamedTuple

from torch import Tensor, where


class Penalties(NamedTuple):
    """Penalty parameters by permanent row and the pool of counts."""

    token_counts: Tensor
    """[num_slots, vocab] int32, see the module's head."""
    slot: Tensor
    """[num_rows] int32, the row's slot in the pool, or -1 when it has no penalty."""
    repetition: Tensor
    """[num_rows] float32, 1 is off."""
    frequency: Tensor
    """[num_rows] float32, 0 is off."""
    presence: Tensor
    """[num_rows] float32, 0 is off."""


def apply_penalties(logits: Tensor, rows: Tensor, penalties: Penalties) -> None:
    """Applies repetition, then frequency, then presence penalty in place.

    A token of the prompt or the output has its logit divided by the repetition penalty when positive and
    multiplied by it when negative. Then `frequency * times` and `presence * (times > 0)` are taken off,
    where times counts the output alone.

    Args:
        logits: [R, vocab] float32.
        rows: [R] int64, the permanent row of each line.

    Source: Keskar et al. 2019, "CTRL" (repetition); the OpenAI API reference (frequency, presence).
    """
    lines = (penalties.slot[rows] >= 0).nonzero().squeeze(1)
    if lines.numel() == 0:
        return
    row = rows[lines]
    counts = penalties.token_counts[penalties.slot[row].long()]
    values = logits[lines]
    repetition = penalties.repetition[row].unsqueeze(1)
    repeated = where(values > 0, values / repetition, values * repetition)
    values = where(counts > 0, repeated, values)
    times = counts >> 1
    values -= penalties.frequency[row].unsqueeze(1) * times
    values -= penalties.presence[row].unsqueeze(1) * (times > 0)
    logits[lines] = values


def fill_counts(token_counts: Tensor, slot: int, prompt: Tensor, output: Tensor) -> None:
    """Sets a slot's counts for a sequence that joins: `prompt` and `output` are its token ids, int64."""
    counts = token_counts[slot].zero_()
    counts[prompt] = 1
    counts.index_add_(0, output, counts.new_full(output.shape, 2))


def count_tokens(token_counts: Tensor, slots: Tensor, tokens: Tensor) -> None:
    """Adds one freshly drawn output token to each slot.

    Args:
        slots: [R] int32, no slot twice; a negative one is skipped.
        tokens: [R] int64; a negative one is skipped.
    """
    kept = ((slots >= 0) & (tokens >= 0)).nonzero().squeeze(1)
    token_counts[slots[kept].long(), tokens[kept]] += 2
