"""Captured graphs by size of step."""

import gc
import logging
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch

_log = logging.getLogger(__name__)

Work = Callable[[], None]


class Graphs(Protocol):
    """Runs work, from a captured graph where there is one."""

    def run(self, key: Hashable, work: Work) -> None:
        """Do the work that `key` stands for."""

    def has(self, key: Hashable) -> bool:
        """Whether there is a graph for `key`."""

    def capture(self, key: Hashable, work: Work) -> None:
        """Make a graph of work that was done before, so that everything it needs is loaded."""


class EagerGraphs:
    """No graphs: work is launched piece by piece."""

    def run(self, key: Hashable, work: Work) -> None:
        work()

    def has(self, key: Hashable) -> bool:
        return True

    def capture(self, key: Hashable, work: Work) -> None: ...


class CudaGraphs:
    """Graphs that share one memory pool: at most one of them runs at a time.

    A pool needs a live graph at any time, so graphs are kept for ever. What was run once without a graph gets
    one when it is run again: by then all its kernels are loaded, which a capture cannot do.
    """

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._seen: set[Hashable] = set()

    def run(self, key: Hashable, work: Work) -> None:
        graph = self._graphs.get(key)
        if graph is None and key in self._seen:
            self.capture(key, work)
            graph = self._graphs[key]
        if graph is not None:
            graph.replay()
            return
        self._seen.add(key)
        work()

    def has(self, key: Hashable) -> bool:
        return key in self._graphs

    def capture(self, key: Hashable, work: Work) -> None:
        graph = torch.cuda.CUDAGraph()
        with _no_collection():
            # `torch.cuda.graph` would wait for the device and empty its caches first.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        self._graphs[key] = graph
        _log.debug("captured %s", key)


@contextmanager
def _no_collection() -> Iterator[None]:
    """A collection may free tensors, which a capture does not allow."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
