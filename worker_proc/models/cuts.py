"""Parts of stored tensors."""

from typing import NamedTuple

import torch
from torch import Tensor


class Cut(NamedTuple):
    """Lines of a stored tensor along one of its dimensions, in order."""

    full: int  # lines that the stored tensor has
    spans: tuple[tuple[int, int], ...]  # start and number of those that are held
    dim: int = 0

    @property
    def size(self) -> int:
        return sum(size for _, size in self.spans)

    def across(self) -> "Cut":
        """The same lines as columns."""
        return self._replace(dim=1)

    def stored_shape(self, held: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the stored tensor that a tensor of shape `held` is cut from."""
        return (*held[: self.dim], self.full, *held[self.dim + 1 :])

    def of(self, stored: Tensor) -> Tensor:
        """The held lines of a stored tensor."""
        parts = [stored.narrow(self.dim, start, size) for start, size in self.spans]
        return parts[0] if len(parts) == 1 else torch.cat(parts, self.dim)
