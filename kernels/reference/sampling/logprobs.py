"""Log-probabilities of drawn tokens and of the most likely ones."""

from typing import NamedTuple

from torch import Tensor, float32


class Logprobs(NamedTuple):
    """Log-probabilities for R rows."""

    chosen: Tensor
    """[R] float32, that of the given token; -inf when its logit is."""
    rank: Tensor
    """[R] int64, one more than the number of tokens that are more likely."""
    top: Tensor
    """[R, k] float32, descending."""
    top_ids: Tensor
    """[R, k] int64; the order among equals is not defined."""


def compute_logprobs(logits: Tensor, chosen: Tensor, k: int) -> Logprobs:
    """Returns log softmax(logits) at `chosen` and at the k most likely tokens, in float32.

    Args:
        logits: [R, vocab], as the model gave them.
        chosen: [R] int64; a negative one is read as token 0.
        k: 0 or more; the same for all rows, each takes what it asked for.
    """
    wide = logits.to(float32)
    norm = wide.logsumexp(-1, keepdim=True)
    value = wide.gather(1, chosen.clamp(min=0).unsqueeze(1))
    rank = (wide > value).sum(-1) + 1
    top, top_ids = wide.topk(k)
    return Logprobs((value - norm).squeeze(1), rank, top - norm, top_ids)
