"""The order of work on the device, and how the host learns that a part of it is done."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class Mark(Protocol):
    """A point in a queue of work."""

    def passed(self) -> bool:
        """Whether the device is past it; does not wait."""

    def since(self, earlier: "Mark") -> float:
        """Milliseconds on the device from an earlier point to this one; both must have passed."""


class Queue(Protocol):
    """One order of steps, and copies to the host beside it."""

    def mark(self) -> Mark:
        """The point behind all that was launched so far."""

    def fetch(self, copies: Sequence[tuple[Tensor, Tensor]], *, behind: Mark) -> Mark:
        """Copy device tensors to host tensors when `behind` has passed, while the device goes on."""

    def wait(self, mark: Mark) -> None:
        """What is launched from now on starts when `mark` has passed; the host does not wait."""


class CudaQueue:
    """The current stream, and one for copies."""

    def __init__(self) -> None:
        self._steps = torch.cuda.current_stream()
        self._copies = torch.cuda.Stream()

    def mark(self) -> "CudaMark":
        mark = CudaMark()
        mark.event.record(self._steps)
        return mark

    def fetch(self, copies: Sequence[tuple[Tensor, Tensor]], *, behind: "CudaMark") -> "CudaMark":
        self._copies.wait_event(behind.event)
        with torch.cuda.stream(self._copies):
            for source, target in copies:
                target.copy_(source, non_blocking=True)
        done = CudaMark()
        done.event.record(self._copies)
        return done

    def wait(self, mark: "CudaMark") -> None:
        self._steps.wait_event(mark.event)


class CudaMark:
    """An event of the driver."""

    def __init__(self) -> None:
        self.event = torch.cuda.Event(enable_timing=True)

    def passed(self) -> bool:
        return bool(self.event.query())

    def since(self, earlier: "CudaMark") -> float:
        return float(earlier.event.elapsed_time(self.event))


class HostQueue:
    """No device: all is done when it was launched."""

    def mark(self) -> "HostMark":
        return HostMark()

    def fetch(self, copies: Sequence[tuple[Tensor, Tensor]], *, behind: "HostMark") -> "HostMark":
        for source, target in copies:
            target.copy_(source)
        return HostMark()

    def wait(self, mark: "HostMark") -> None: ...


class HostMark:
    """A point that has passed."""

    def passed(self) -> bool:
        return True

    def since(self, earlier: "HostMark") -> float:
        return 0.0
