"""A group of ranks that are threads of this process: how a model is divided, without processes."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

T = TypeVar("T")

WITHIN = 60.0  # seconds; a rank that fails breaks the barrier for the others


class Table:
    """Where the ranks lay down what they tell each other."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size, timeout=WITHIN)
        self.said: list[Any] = [None] * size


class ThreadRanks:
    """One rank; see `octavo.worker_proc.parallel.Ranks`."""

    def __init__(self, table: Table, rank: int) -> None:
        self.leads = rank == 0
        self._table, self._rank = table, rank

    def _exchange(self, said: Any) -> list[Any]:
        self._table.said[self._rank] = said
        self._table.barrier.wait()
        heard = list(self._table.said)
        self._table.barrier.wait()
        return heard

    def meet(self, scheduler: int, step: int) -> None:
        assert set(self._exchange((scheduler, step))) == {(scheduler, step)}

    def sum(self, part: Tensor) -> Tensor:
        total: Tensor = torch.stack(self._exchange(part.clone())).sum(0)
        return total

    def join(self, part: Tensor, width: int) -> Tensor:
        whole = torch.cat(self._exchange(part), dim=1)
        assert whole.shape[1] == width
        return whole

    def agree(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        drawn: NDArray[np.int64] = self._exchange(tokens)[0]
        return drawn

    def least(self, counts: list[int]) -> list[int]:
        return [min(column) for column in zip(*self._exchange(counts), strict=True)]


def run_ranks(size: int, body: Callable[[int, ThreadRanks], T]) -> Sequence[T]:
    """What `body(rank, ranks)` returns on each rank, all at once."""
    table = Table(size)

    def run(rank: int) -> T:
        try:
            return body(rank, ThreadRanks(table, rank))
        except BaseException:
            table.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))
