"""The life of `octavo serve`: start, announce, watch, restart, and end with a status that says why."""

import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from ...protocol.errors import ProcessDiedError, StartupError, from_kind
from .children import Child, ChildSpec, Ending, end_all, kill_all
from .crew import Crew
from .events import Events, Healthy, Signalled
from .health import HealthWatch
from .metrics import ProcessMetrics, mark_dead
from .ports import url_of
from .published import ServerInfo, publish
from .run_dir import RunDir

_log = logging.getLogger(__name__)

INTERRUPTED = 128 + signal.SIGINT
END_NOW = signal.SIGUSR1  # to a frontend: open streams get an error frame; before it listens, its end
_FRONTEND = "frontend"  # what the roles of frontends begin with
_GATHER_SECONDS = 0.2  # a process that took others along may be noticed after them
_LAST_FRAMES_SECONDS = 3.0  # for frontends to tell open streams that the engine is gone
_ENGINE_SECONDS = 3.0  # for scheduler and workers to end a step
_LATE_SECONDS = 2.0  # beyond its own bound, before a draining frontend is ended


@dataclass(frozen=True)
class ServerParts:
    """What a supervisor is given to run."""

    model: str  # served name
    endpoint: str  # where clients of the scheduler connect
    control: str  # where its workers and this process do
    engine: tuple[ChildSpec, ...]  # scheduler and workers, the slowest to start first
    frontends: tuple[ChildSpec, ...]
    shutdown_timeout: float  # seconds that running requests get after SIGTERM
    max_restarts: int = 0  # of one process, without progress between them


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
        self._crew: Crew | None = None
        self._metrics: ProcessMetrics | None = None
        self._ready = False

    def run(self) -> int:
        """Serve until told to end, and return the exit status: 0 after SIGTERM, 130 after SIGINT.

        Raises a StartupError with the root cause when a process ended by itself and restarts do not help.
        """
        self._events.watch_signals()
        self._publish()
        health = HealthWatch(self._url, lambda: self._events.put(Healthy()))
        try:
            parts = self._parts
            specs = (*parts.engine, *parts.frontends)
            self._crew = Crew(specs, parts.control, parts.max_restarts, self._events.put)
            self._metrics = ProcessMetrics(self._run_dir.metrics)  # slow to load: the others do so meanwhile
            self._publish()
            return self._watch(self._crew)
        finally:
            health.close()
            self._listener.close()
            if self._crew is not None:
                self._crew.close()

    def interrupt(self) -> None:
        """End everything soon, as SIGINT does. From any thread."""
        self._events.put(Signalled(signal.SIGINT))

    @property
    def _children(self) -> list[Child]:
        return self._crew.children if self._crew is not None else []

    @property
    def _engine(self) -> list[Child]:
        return [child for child in self._children if not child.role.startswith(_FRONTEND)]

    @property
    def _frontends(self) -> list[Child]:
        return [child for child in self._children if child.role.startswith(_FRONTEND)]

    def _watch(self, crew: Crew) -> int:
        while True:
            event = self._events.take(crew.next_beat())
            if crew.beat():
                self._publish()
            self._export(crew)
            if isinstance(event, Healthy):
                self._ready = True
                self._publish()
                self._on_ready(self._url)
            elif isinstance(event, Ending):
                self._ended(crew, event)
            elif isinstance(event, Signalled):
                return self._interrupt() if event.number == signal.SIGINT else self._drain(crew)

    def _ended(self, crew: Crew, ending: Ending) -> None:
        """Leave a process that ended to the crew."""
        last = crew.ended(ending)
        if last is not None:
            restarts = crew.num_restarts[last.role]
            self._fail(last, f"; {restarts} restarts did not help" if restarts else "")

    def _drain(self, crew: Crew) -> int:
        """Refuse new requests, let running ones finish, then end the engine."""
        _log.info("draining: running requests have %g s", self._parts.shutdown_timeout)
        self._listener.close()  # a connection that no frontend accepts must be refused, not left waiting
        for child in self._frontends:
            crew.stays_ended(child.role)
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + self._parts.shutdown_timeout + _LATE_SECONDS
        while any(child.ending is None for child in self._frontends):
            event = self._events.take(min(deadline, crew.next_beat()))
            crew.beat()
            if time.monotonic() >= deadline:
                _log.warning("requests were still running at the end of the drain")
                break
            if isinstance(event, Signalled) and event.number == signal.SIGINT:
                return self._interrupt()
            if isinstance(event, Ending) and not event.role.startswith(_FRONTEND):
                self._ended(crew, event)
        kill_all(self._frontends)
        end_all(self._engine, within=_ENGINE_SECONDS)
        return 0

    def _interrupt(self) -> int:
        """End everything soon; at once at the second SIGINT."""
        self._listener.close()
        for child in self._children:
            child.signal(END_NOW if child in self._frontends else signal.SIGTERM)
        deadline = time.monotonic() + _LAST_FRAMES_SECONDS
        while any(child.ending is None for child in self._children):
            event = self._events.take(deadline)
            if event is None or (isinstance(event, Signalled) and event.number == signal.SIGINT):
                break
        kill_all(self._children)
        return INTERRUPTED

    def _fail(self, first: Ending, more: str = "") -> None:
        """End what is left and raise the root cause, and `more` behind it."""
        root = self._root_cause(first)
        mark_dead(self._run_dir.metrics, root.pid)
        self._listener.close()
        # The engine first: a frontend whose engine is gone has nothing to drain but error frames.
        end_all(self._engine, within=_ENGINE_SECONDS)
        end_all(self._frontends, within=_LAST_FRAMES_SECONDS, number=END_NOW)
        raise _as_error(root, more)

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

    def _export(self, crew: Crew) -> None:
        if self._metrics is not None:
            up = {child.role: child.ending is None for child in crew.children}
            self._metrics.update(up, crew.num_restarts)

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


def _as_error(root: Ending, more: str) -> StartupError:
    """The error that a process left behind as its last words, with the exit status that belongs to it."""
    kind, _, message = root.cause.partition(": ")
    error = from_kind(kind, f"{root.role}: {message}{more}")
    return error if isinstance(error, StartupError) else ProcessDiedError(f"{root}{more}")
