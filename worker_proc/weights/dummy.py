"""Random weights in the place of a checkpoint, for tests of speed and memory."""

from collections.abc import Mapping

import torch
from torch import Tensor


def fill_dummy(slots: Mapping[str, Tensor], *, seed: int, spread: float) -> None:
    """Fill matrices from a normal distribution of width `spread`, norms with 1 and biases with 0."""
    for number, (name, slot) in enumerate(slots.items()):
        if name.endswith(".bias"):
            slot.zero_()
        elif slot.dim() == 1:
            slot.fill_(1.0)
        else:
            generator = torch.Generator(slot.device).manual_seed(seed * 1_000_003 + number)
            slot.normal_(0.0, spread, generator=generator)
