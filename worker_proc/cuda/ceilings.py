"""What a device can do at best, measured: the figures that benchmarks stand beside."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Rates of one device."""

    copy: float  # bytes a second, read and written
    flops: float  # of a large bf16 product of random numbers, a second
    graph_launch_us: float  # of the host, for a graph of 100 small kernels

    def __str__(self) -> str:
        return (
            f"ceilings of {torch.cuda.get_device_name()}: copy {self.copy / 1e12:.2f} TB/s, bf16 product "
            f"{self.flops / 1e12:.0f} TFLOP/s, graph launch {self.graph_launch_us:.1f} us of the host"
        )


def measure_ceilings() -> Ceilings:
    """Measure the current device, which takes about a second and 5 GB."""
    source = torch.randn(1 << 29, device="cuda")
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
        graph_launch_us=_graph_launch_us(source[:1024]),
    )


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
