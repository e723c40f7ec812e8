"""Tokens that a grammar allows, a bit each."""

import torch
from torch import Tensor


def apply_bitmask(logits: Tensor, lines: Tensor, mask: Tensor) -> None:
    """Removes the tokens whose bit is 0, in place.

    Args:
        logits: [R, vocab] float32.
        lines: [G] int64, the line of logits that each line of the mask is for; none twice.
        mask: [G, ceil(vocab / 32)] int32; bit i of word w is that of token 32 * w + i.
    """
    bits = mask.unsqueeze(-1) >> torch.arange(32, device=mask.device, dtype=torch.int32)
    removed = (bits & 1).flatten(1)[:, : logits.shape[1]] == 0
    logits[lines] = logits[lines].masked_fill_(removed, float("-inf"))
