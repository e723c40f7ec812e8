"""What a supervisor waits for: ends of processes, signals, health. One queue, one reader."""

import queue
import signal
import time
from dataclasses import dataclass
from types import FrameType

from .children import Ending


@dataclass(frozen=True)
class Healthy:
    """The server answers /health with 200."""


@dataclass(frozen=True)
class Signalled:
    """Somebody wants the server to end."""

    number: int


Event = Ending | Healthy | Signalled


class Events:
    """The queue. Threads and signal handlers put, the supervisor's main thread takes."""

    def __init__(self) -> None:
        # SimpleQueue alone may be used from a signal handler that interrupts its own reader.
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def put(self, event: Event) -> None:
        self._queue.put(event)

    def take(self, deadline: float | None = None) -> Event | None:
        """The next event; None when none came before `deadline`, a time of `time.monotonic`."""
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            return None

    def watch_signals(self) -> None:
        """Turn SIGINT, SIGTERM and SIGHUP into events. On the main thread."""

        def on_signal(number: int, _frame: FrameType | None) -> None:
            self.put(Signalled(number))

        signal.signal(signal.SIGINT, on_signal)
        signal.signal(signal.SIGTERM, on_signal)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored by nohup
            signal.signal(signal.SIGHUP, on_signal)
