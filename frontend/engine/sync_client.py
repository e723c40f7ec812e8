"""The client for a program without an event loop: it waits where it is told to."""

import os
import threading
import time
from collections.abc import Callable, Sequence

import zmq

from ...protocol.errors import EngineDeadError
from ...protocol.ids import new_seed
from ...protocol.sampling import SamplingParams
from ..text import Tokenizer
from .client_core import ClientCore
from .link import Link
from .stream import Stream

_BEAT_SECONDS = 1.0


class SyncClient:
    """A connection to a scheduler. Its methods may be called by several threads, one waits at a time.

    While nobody waits a thread of its own shows life to the scheduler and takes in what arrives: a program
    that does something else for a while loses nothing.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        endpoint: str,
        root_cause: Callable[[], str | None],
        *,
        recover: bool = False,
        draw_seed: Callable[[], int] = new_seed,
    ) -> None:
        """`root_cause` is asked why the engine died; None as long as it lives, or is being restarted.

        `recover` and `draw_seed` are those of `ClientCore`.
        """
        self._core = ClientCore(tokenizer, "engine", recover=recover, draw_seed=draw_seed)
        self._root_cause = root_cause
        self._link = Link(self._core, endpoint)
        self._poller = zmq.Poller()
        self._poller.register(self._link.socket, zmq.POLLIN)
        self._poller.register(self._link.monitor, zmq.POLLIN)
        self._beat_due = time.monotonic() + _BEAT_SECONDS
        self._lock = threading.Lock()
        self._changed: dict[int, Stream] = {}  # while nobody waited
        self._owner = os.getpid()
        self._closed = threading.Event()
        self._keeper = threading.Thread(target=self._keep_alive, name="octavo-client", daemon=True)
        self._keeper.start()

    def wait_ready(self) -> None:
        """Wait until a generation could run. Raises EngineDeadError when it never will."""
        while not self._core.ready:
            if (cause := self._root_cause() or self.death) is not None:
                raise EngineDeadError(cause)
            self.wait(0.1)

    @property
    def death(self) -> str | None:
        """Why no generation will ever run again; None as long as one may."""
        return self._core.reason if self._core.fatal else None

    def check(self, prompt_ids: Sequence[int], params: SamplingParams) -> None:
        """Raises as `ClientCore.check`."""
        self._core.check(prompt_ids, params)

    def submit(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, name: str, priority: int, cache_salt: str
    ) -> Stream:
        """Start a request, which is sent with the next `wait` or `flush`. Raises as `ClientCore.submit`."""
        with self._lock:
            now = time.monotonic()
            return self._core.submit(
                prompt_ids, params, now, name=name, priority=priority, cache_salt=cache_salt
            )

    def abort(self, stream: Stream) -> None:
        """End a request that nobody wants any more."""
        with self._lock:
            self._core.abort(stream)
            self._changed.pop(stream.number, None)
            self._link.flush()

    def flush(self) -> None:
        """Send what is to be sent, as far as it can go out at once."""
        with self._lock:
            self._link.flush()

    def wait(self, seconds: float) -> list[Stream]:
        """The streams that changed; waits for the first change, at most `seconds`."""
        end = time.monotonic() + seconds
        with self._lock:
            while True:
                self._take(self._link.pump())
                now = time.monotonic()
                if now >= self._beat_due:
                    self._beat(now)
                if self._changed or now >= end:
                    changed, self._changed = self._changed, {}
                    return list(changed.values())
                if not self._link.more:
                    self._poller.poll(max(0, round((min(end, self._beat_due) - now) * 1e3)))

    def close(self) -> None:
        """Disconnect. Open requests are lost; the scheduler ends them."""
        self._closed.set()
        if os.getpid() != self._owner:
            return
        self._keeper.join()
        with self._lock:
            self._link.close()

    def _keep_alive(self) -> None:
        while not self._closed.wait(_BEAT_SECONDS / 4):
            if self._lock.acquire(blocking=False):
                try:
                    self._take(self._link.pump())
                    if (now := time.monotonic()) >= self._beat_due:
                        self._beat(now)
                finally:
                    self._lock.release()

    def _beat(self, now: float) -> None:
        self._beat_due = now + _BEAT_SECONDS
        self._take(self._link.beat(self._root_cause()))

    def _take(self, streams: list[Stream]) -> None:
        for stream in streams:
            self._changed[stream.number] = stream
