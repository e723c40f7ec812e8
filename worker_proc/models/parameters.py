"""The tensors a model has, by the names they have in a checkpoint.

A model asks for its weights while it is built; several named tensors may be parts of one, so that a loader
streams each to where it belongs and nothing is merged afterwards.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .cuts import Cut


class Parameters:
    """Uninitialized weights, and where each named tensor of a checkpoint goes.

    Attributes:
        slots: by name, the place of the tensor, or of the part of it that `cuts` names.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device, *, wide_norms: bool = False) -> None:
        self.dtype = dtype
        self.device = device
        self.wide_norms = wide_norms
        self.slots: dict[str, Tensor] = {}
        self.cuts: dict[str, Cut] = {}
        self.norms: list[Tensor] = []

    def norm(self, name: str, size: int) -> Tensor:
        """The [size] weights of a norm, in float32 if something is to be added to them."""
        weight = torch.empty(size, dtype=torch.float32 if self.wide_norms else self.dtype, device=self.device)
        self.slots[name] = weight
        self.norms.append(weight)
        return weight

    def matrix(self, parts: Sequence[tuple[str, int | Cut]], width: int | Cut | None = None) -> Tensor:
        """A [sum of rows, width] tensor made of named parts one above the other; a vector without `width`."""
        num_rows = sum(_size(rows) for _, rows in parts)
        shape = (num_rows,) if width is None else (num_rows, _size(width))
        whole = torch.empty(shape, dtype=self.dtype, device=self.device)
        start = 0
        for name, rows in parts:
            self.slots[name] = whole[start : start + _size(rows)]
            start += _size(rows)
            for cut in (rows, width):
                if isinstance(cut, Cut) and cut.size < cut.full:
                    self.cuts[name] = cut
        return whole


def _size(lines: int | Cut) -> int:
    return lines.size if isinstance(lines, Cut) else lines
