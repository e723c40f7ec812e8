"""A group of several ranks over torch.distributed."""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from ...protocol.config import WorkerConfig
from ...protocol.errors import RankLostError
from .ranks import ALONE, Ranks
from .rendezvous import meeting_file

_LOAD_SECONDS = 1800.0  # a rank may take so much longer to load than another
_STEP_SECONDS = 60.0  # a rank that comes to a step so much later than another will not come
_READY = "loaded"

T = TypeVar("T")


def join_group(config: WorkerConfig, backend: str) -> Ranks:
    """Meet the other ranks of this worker's group. `backend` is "gloo" or "nccl".

    Raises RankLostError when one does not come.
    """
    if config.group_size == 1:
        return ALONE
    file = meeting_file(
        Path(config.run_dir), config.group, config.rank, config.group_size, within=_LOAD_SECONDS
    )
    # Ranks of one group are on one machine: without this they speak over the first interface there is.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(str(file), config.group_size)
    dist.init_process_group(
        backend,
        store=store,
        rank=config.rank,
        world_size=config.group_size,
        timeout=timedelta(seconds=_STEP_SECONDS),
    )
    return _Group(store, config.rank, config.group_size)


class _Group:
    """The ranks of a group, over the default process group."""

    def __init__(self, store: dist.Store, rank: int, size: int) -> None:
        self.leads = rank == 0
        self._store, self._rank, self._size = store, rank, size

    def meet(self, scheduler: int, step: int) -> None:
        here = torch.tensor([scheduler & (2**63 - 1), step])
        places = [torch.empty_like(here) for _ in range(self._size)]
        _told(lambda: dist.all_gather(places, here))
        if any(not torch.equal(here, place) for place in places):
            raise RankLostError(f"the ranks are at different steps: {[p.tolist()[1] for p in places]}")

    def sum(self, part: Tensor) -> Tensor:
        _told(lambda: dist.all_reduce(part))
        return part

    def join(self, part: Tensor, width: int) -> Tensor:
        # All parts travel with the width of the widest; what is behind a part's end is left out again.
        widest = -(-width // self._size)
        sent = part.contiguous()
        if part.shape[1] < widest:
            sent = torch.nn.functional.pad(part, (0, widest - part.shape[1]))
        parts = [torch.empty_like(sent) for _ in range(self._size)]
        _told(lambda: dist.all_gather(parts, sent))
        bounds = [-(-width * rank // self._size) for rank in range(self._size + 1)]
        return torch.cat([whole[:, : bounds[at + 1] - bounds[at]] for at, whole in enumerate(parts)], dim=1)

    def agree(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        drawn = torch.from_numpy(tokens)
        _told(lambda: dist.broadcast(drawn, src=0))
        return tokens

    def least(self, counts: list[int]) -> list[int]:
        self._store.set(f"{_READY}-{self._rank}", "")
        others = [f"{_READY}-{rank}" for rank in range(self._size)]
        _told(lambda: self._store.wait(others, timedelta(seconds=_LOAD_SECONDS)))
        least = torch.tensor(counts)
        _told(lambda: dist.all_reduce(least, dist.ReduceOp.MIN))
        return [int(count) for count in least]


def _told(exchange: Callable[[], T]) -> T:
    """What an exchange gives. Whatever breaks it is a rank that is not there any more."""
    try:
        return exchange()
    except RuntimeError as error:
        raise RankLostError(f"a rank of the group is gone: {error}") from error
