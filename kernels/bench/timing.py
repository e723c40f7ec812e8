"""Measuring launches: graph replays over rotated inputs, free of host time and of hits in the L2 cache."""

import statistics
import traceback
from collections.abc import Callable
from typing import NamedTuple

import torch

from .ceilings import Ceilings

_CACHE_BYTES = 200 << 20
"""Inputs rotate until this much has been touched: three times the L2 cache of an H200."""


_READ = 4.5e12
"""Bytes a second, the best read seen on an H200: reading alone is faster than a copy."""


class Case(NamedTuple):
    """One thing to measure."""

    name: str
    make: Callable[[], Callable[[], object]]
    """Allocates one set of inputs and returns the launch that uses them."""
    num_bytes: int = 0
    """Bytes it must move through device memory."""
    flops: int = 0
    """Operations on matrix units it must do."""


def replay_us(launches: list[Callable[[], object]], *, rounds: int = 20) -> float:
    """Median time of one launch in microseconds, over `rounds` replays of a graph of all of them."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for launch in launches:
            launch()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    repeats = max(1, 40 // len(launches))
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(repeats):
            for launch in launches:
                launch()
    times = []
    graph.replay()
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / (repeats * len(launches)))
    return statistics.median(times)


def measure(case: Case, ceilings: Ceilings) -> dict[str, object]:
    """Runs a case and returns its row; an error becomes the row's `error`, so as not to hide the others."""
    row: dict[str, object] = {"name": case.name}
    try:
        copies = min(max(2, _CACHE_BYTES // max(case.num_bytes, 1)), 24)
        us = replay_us([case.make() for _ in range(copies)])
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        row["trace"] = traceback.format_exc()[-2000:]
        return row
    row["us"] = round(us, 2)
    if case.num_bytes:
        row["tb_per_s"] = round(case.num_bytes / us / 1e6, 3)
    if case.flops:
        row["tflop_per_s"] = round(case.flops / us / 1e6, 1)
    bound_us = max(case.num_bytes / max(ceilings.copy, _READ), case.flops / ceilings.flops) * 1e6
    row["bound_us"] = round(bound_us, 2)
    row["percent"] = round(100 * bound_us / us, 1)
    return row
