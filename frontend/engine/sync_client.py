"""The client for a program without an event loop: it waits where it is told to."""

import time
from collections.abc import Callable

import zmq

from ...protocol.errors import EngineDeadError
from ..text import Tokenizer
from .client_core import ClientCore
from .link import Link
from .stream import Stream

_BEAT_SECONDS = 1.0


class SyncClient:
    """A connection to a scheduler, used by one thread at a time."""

    def __init__(
        self, tokenizer: Tokenizer | None, endpoint: str, root_cause: Callable[[], str | None]
    ) -> None:
        """`root_cause` is asked why the engine died; None as long as it lives."""
        self.core = ClientCore(tokenizer, "engine", recover=False)
        self._root_cause = root_cause
        self._link = Link(self.core, endpoint)
        self._poller = zmq.Poller()
        self._poller.register(self._link.socket, zmq.POLLIN)
        self._poller.register(self._link.monitor, zmq.POLLIN)
        self._beat_due = time.monotonic() + _BEAT_SECONDS

    def wait_ready(self) -> None:
        """Wait until a generation could run. Raises EngineDeadError when it never will."""
        while not self.core.ready:
            cause = self._root_cause() or (self.core.reason if self.core.fatal else None)
            if cause is not None:
                raise EngineDeadError(cause)
            self.wait(0.1)

    def wait(self, seconds: float) -> list[Stream]:
        """The streams that changed; waits for the first change, at most `seconds`."""
        end = time.monotonic() + seconds
        while True:
            changed = self._link.pump()
            now = time.monotonic()
            if now >= self._beat_due:
                self._beat_due = now + _BEAT_SECONDS
                changed += self._link.beat(self._root_cause())
            if changed or now >= end:
                return changed
            self._poller.poll(max(0, round((min(end, self._beat_due) - now) * 1e3)))

    def flush(self) -> None:
        """Send what is to be sent without waiting for anything; shows life when that is due.

        A program that adds thousands of requests before it waits for one must not be taken for dead.
        """
        if time.monotonic() >= self._beat_due:
            self._beat_due = time.monotonic() + _BEAT_SECONDS
            self.core.alive()
        self._link.flush()

    def close(self) -> None:
        """Disconnect. Open requests are lost; the scheduler ends them."""
        self._link.close()
