"""Random weights in the place of a checkpoint, for tests of speed and memory."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ..models.cuts import Cut


def fill_dummy(slots: Mapping[str, Tensor], cuts: Mapping[str, Cut], *, seed: int, spread: float) -> None:
    """Fill matrices from a normal distribution of width `spread`, norms with 1 and biases with 0.

    What `cuts` names is that part of what the whole would be.
    """
    for number, (name, slot) in enumerate(slots.items()):
        if name.endswith(".bias"):
            slot.zero_()
        elif slot.dim() == 1:
            slot.fill_(1.0)
        else:
            generator = torch.Generator(slot.device).manual_seed(seed * 1_000_003 + number)
            cut = cuts.get(name)
            whole = slot if cut is None else slot.new_empty(cut.stored_shape(tuple(slot.shape)))
            whole.normal_(0.0, spread, generator=generator)
            if cut is not None:
                slot.copy_(cut.of(whole))
