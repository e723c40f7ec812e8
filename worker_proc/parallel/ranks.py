"""What a rank needs of its group, and the group of one."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


class Ranks(Protocol):
    """The ranks of a group, each of which calls the same methods in the same order.

    A method raises RankLostError when another rank has ended or is at another step.
    """

    leads: bool  # this is rank 0, which draws the tokens

    def meet(self, scheduler: int, step: int) -> None:
        """Wait until every rank is at this step of this incarnation of a scheduler."""

    def sum(self, part: Tensor) -> Tensor:
        """The sum of all ranks' tensors, which may be computed in the place of this one's."""

    def join(self, part: Tensor, width: int) -> Tensor:
        """[S, width] from each rank's columns, [S, its part]."""

    def agree(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """The tokens [S] of rank 0; of the others' only the shape counts."""

    def least(self, counts: list[int]) -> list[int]:
        """The smallest of each number over all ranks. The first call of all: it waits for slow ones."""


class _Alone:
    """The group of a single rank."""

    leads = True

    def meet(self, scheduler: int, step: int) -> None:
        pass

    def sum(self, part: Tensor) -> Tensor:
        return part

    def join(self, part: Tensor, width: int) -> Tensor:
        return part

    def agree(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        return tokens

    def least(self, counts: list[int]) -> list[int]:
        return counts


ALONE = _Alone()
