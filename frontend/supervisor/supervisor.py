"""The life of `octavo serve`: start, announce, watch, and end with a status that says why."""

import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from ...protocol.errors import ProcessDiedError, StartupError, from_kind
from .children import Child, ChildSpec, Ending, end_all, kill_all
from .events import Events, Healthy, Signalled
from .health import HealthWatch
from .metrics import mark_dead
from .ports import url_of
from .published import ServerInfo, publish
from .run_dir import RunDir

_log = logging.getLogger(__name__)

INTERRUPTED = 128 + signal.SIGINT
_GATHER_SECONDS = 0.2  # a process that took others along may be noticed after them
_LAST_FRAMES_SECONDS = 3.0  # for frontends to tell open streams that the engine is gone
_ENGINE_SECONDS = 3.0  # for scheduler and workers to end a step
_LATE_SECONDS = 2.0  # beyond its own bound, before a draining frontend is ended


@dataclass(frozen=True)
class ServerParts:
    """What a supervisor is given to run."""

    model: str  # served name
    endpoint: str  # where clients of the scheduler connect
    engine: tuple[ChildSpec, ...]  # scheduler and workers, the slowest to start first
    frontends: tuple[ChildSpec, ...]
    shutdown_timeout: float  # seconds that running requests get after SIGTERM


class Supervisor:
    """Runs the processes of one server."""

    def __init__(
        self, parts: ServerParts, run_dir: RunDir, listener: socket.socket, on_ready: Callable[[str], None]
    ) -> None:
        """`on_ready` is called with the server's URL when it has become healthy."""
        self._parts = parts
        self._run_dir = run_dir
        self._listener = listener
        self._on_ready = on_ready
        self._url = url_of(listener)
        self._events = Events()
        self._engine: list[Child] = []
        self._frontends: list[Child] = []
        self._ready = False

    def run(self) -> int:
        """Serve until told to end, and return the exit status: 0 after SIGTERM, 130 after SIGINT.

        Raises a StartupError with the root cause when a process of the server ended by itself.
        """
        self._events.watch_signals()
        self._publish()
        health = HealthWatch(self._url, lambda: self._events.put(Healthy()))
        try:
            self._engine = [Child(spec, self._events.put) for spec in self._parts.engine]
            self._frontends = [Child(spec, self._events.put) for spec in self._parts.frontends]
            self._publish()
            return self._watch()
        finally:
            health.close()
            self._listener.close()
            kill_all(self._children)

    def interrupt(self) -> None:
        """End everything soon, as SIGINT does. From any thread."""
        self._events.put(Signalled(signal.SIGINT))

    @property
    def _children(self) -> list[Child]:
        return [*self._frontends, *self._engine]

    def _watch(self) -> int:
        while True:
            event = self._events.take()
            if isinstance(event, Healthy):
                self._ready = True
                self._publish()
                self._on_ready(self._url)
            elif isinstance(event, Ending):
                self._fail(event)
            elif isinstance(event, Signalled):
                return self._interrupt() if event.number == signal.SIGINT else self._drain()

    def _drain(self) -> int:
        """Refuse new requests, let running ones finish, then end the engine."""
        _log.info("draining: running requests have %g s", self._parts.shutdown_timeout)
        self._listener.close()  # a connection that no frontend accepts must be refused, not left waiting
        for child in self._frontends:
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + self._parts.shutdown_timeout + _LATE_SECONDS
        while any(child.ending is None for child in self._frontends):
            event = self._events.take(deadline)
            if event is None:
                _log.warning("requests were still running at the end of the drain")
                break
            if isinstance(event, Signalled) and event.number == signal.SIGINT:
                return self._interrupt()
            if isinstance(event, Ending) and event.role in {child.role for child in self._engine}:
                self._fail(event)
        kill_all(self._frontends)
        end_all(self._engine, within=_ENGINE_SECONDS)
        return 0

    def _interrupt(self) -> int:
        """End everything soon; at once at the second SIGINT."""
        self._listener.close()
        for child in self._children:
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + _LAST_FRAMES_SECONDS
        while any(child.ending is None for child in self._children):
            event = self._events.take(deadline)
            if event is None or (isinstance(event, Signalled) and event.number == signal.SIGINT):
                break
        kill_all(self._children)
        return INTERRUPTED

    def _fail(self, first: Ending) -> None:
        """End what is left and raise the root cause."""
        root = self._root_cause(first)
        mark_dead(self._run_dir.metrics, root.pid)
        self._listener.close()
        # The engine first: a frontend whose engine is gone has nothing to drain but error frames.
        end_all(self._engine, within=_ENGINE_SECONDS)
        end_all(self._frontends, within=_LAST_FRAMES_SECONDS)
        raise _as_error(root)

    def _root_cause(self, first: Ending) -> Ending:
        """Of the processes that end together, the first with last words."""
        endings = [first]
        deadline = time.monotonic() + _GATHER_SECONDS
        while (event := self._events.take(deadline)) is not None:
            if isinstance(event, Ending):
                endings.append(event)
            elif isinstance(event, Signalled):
                break
        return next((ending for ending in endings if ending.cause), first)

    def _publish(self) -> None:
        info = ServerInfo(
            pid=os.getpid(),
            model=self._parts.model,
            url=self._url,
            endpoint=self._parts.endpoint,
            processes={child.role: child.pid for child in self._children},
            ready=self._ready,
        )
        publish(info, self._run_dir.path)


def _as_error(root: Ending) -> StartupError:
    """The error that a process left behind as its last words, with the exit status that belongs to it."""
    kind, _, message = root.cause.partition(": ")
    error = from_kind(kind, f"{root.role}: {message}")
    return error if isinstance(error, StartupError) else ProcessDiedError(str(root))
