"""Where a step's time goes, kernel by kernel."""

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

_SHOWN = 14


def kernel_times(work: Callable[[], object], num_steps: int) -> str:
    """Run `work`, which does so many steps; returns a table of kernels by their time in a step."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        work()
        torch.cuda.synchronize()
    averages = [event for event in profiler.key_averages() if event.self_device_time_total > 0]
    averages.sort(key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in averages)
    lines = [f"    {total / num_steps / 1e3:9.3f} ms a step in kernels"]
    for event in averages[:_SHOWN]:
        milliseconds = event.self_device_time_total / num_steps / 1e3
        lines.append(f"    {milliseconds:9.4f} ms {event.count / num_steps:6.1f} x {event.key[:90]}")
    return "\n".join(lines)
