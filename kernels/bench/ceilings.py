"""What a device can do at best, measured: the figures that benchmarks stand beside.

`python -m octavo.kernels.bench.ceilings` prints them as a line of JSON, `null` without a CUDA device.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

_WARM_UP_COPIES = 1000  # of 2 GiB in all a copy: half a second


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Rates of one device."""

    copy: float  # bytes a second, read and written
    flops: float  # of a large bf16 product of random numbers, a second
    launch_us: float  # of the host, for one small kernel
    graph_launch_us: float  # of the host, for a graph of 100 of them

    def __str__(self) -> str:
        return (
            f"ceilings: copy {self.copy / 1e12:.2f} TB/s, bf16 product {self.flops / 1e12:.0f} TFLOP/s, "
            f"of the host {self.launch_us:.1f} us a launch and {self.graph_launch_us:.1f} a graph"
        )


def measure_ceilings() -> Ceilings:
    """Measure the current device, which takes about two seconds and 5 GB.

    A device that was idle takes its clocks up first: what is measured before that is no ceiling.
    """
    source = torch.randn(1 << 29, device="cuda")
    for _ in range(_WARM_UP_COPIES):
        source[: 1 << 28].copy_(source[1 << 28 :])
    copy_seconds = _seconds(lambda: source[: 1 << 28].copy_(source[1 << 28 :]), 8)
    size = 8192
    a, b = (
        source[: size * size].view(size, size).bfloat16(),
        source[-size * size :].view(size, size).bfloat16(),
    )
    out = torch.empty_like(a)
    product_seconds = _seconds(lambda: torch.mm(a, b, out=out), 16)
    return Ceilings(
        copy=source.nbytes / copy_seconds,
        flops=2 * size**3 / product_seconds,
        launch_us=_launch_us(source[:1024]),
        graph_launch_us=_graph_launch_us(source[:1024]),
    )


def _launch_us(x: torch.Tensor) -> float:
    """Launches are not waited for; 500 fit into the device's queue."""
    x.add_(0.0)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(500):
        x.add_(0.0)
    taken = time.perf_counter() - began
    torch.cuda.synchronize()
    return taken / 500 * 1e6


def _graph_launch_us(x: torch.Tensor) -> float:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x.add_(0.0)
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        for _ in range(100):
            x.add_(0.0)
        graph.capture_end()
        taken = []
        for _ in range(50):
            torch.cuda.synchronize()
            began = time.perf_counter()
            graph.replay()
            taken.append(time.perf_counter() - began)
        torch.cuda.synchronize()
    return sorted(taken)[len(taken) // 2] * 1e6


def _seconds(work: Callable[[], object], count: int) -> float:
    """The least time of `count` runs, behind two that warm up."""
    taken = []
    for _ in range(count + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) / 1e3)
    return min(taken[2:])


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(measure_ceilings()) if torch.cuda.is_available() else None) + "\n")
