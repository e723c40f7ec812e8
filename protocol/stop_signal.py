"""SIGTERM as a request to stop: at once while loading, behind the step in hand while serving."""

import signal
import socket
from types import FrameType


class StopSignal:
    """Installed once, on the main thread. SIGINT is ignored: Ctrl-C is the supervisor's to handle."""

    def __init__(self) -> None:
        self.serving = False
        self.asked = False  # for those who do not poll
        self.readable, self._wake = socket.socketpair()  # `readable` ends a poll that a signal must interrupt
        self._wake.setblocking(False)
        # Written where the signal arrives: a handler in Python never runs when the signal comes right before
        # the main thread blocks in a poll.
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked = True
        if not self.serving:
            raise SystemExit(0)
