"""Scheduler and workers as children of a Python program that is its own frontend."""

import atexit
import os
import threading

from ...protocol.lifeline import Lifeline
from ..engine.args import EngineArgs
from ..engine.resolve import ResolvedModel, resolve_model
from .children import Ending, end_all
from .configs import CLIENTS, WORKERS, engine_specs
from .crew import Crew
from .events import Events, Signalled
from .run_dir import create_run_dir

_END_SECONDS = 3.0
_CLOSED = 0  # no signal's number


class EngineProcesses:
    """A running scheduler with its workers, which are restarted as those of a server are.

    They end with this process, however it ends.
    """

    def __init__(self, args: EngineArgs, model: ResolvedModel) -> None:
        self._owner = os.getpid()
        self._run_dir = create_run_dir()
        self._lifeline = Lifeline()
        self._lost: list[Ending] = []  # ends that no restart follows
        self._events = Events()
        self._crew: Crew | None = None
        self._keeper: threading.Thread | None = None
        self.endpoint = self._run_dir.endpoint(CLIENTS)
        self.model = model
        self.recovers = args.max_restarts > 0  # requests may go on when a process ended
        atexit.register(self.close)
        try:
            specs = engine_specs(args, model, self._run_dir, self._lifeline)
            control = self._run_dir.endpoint(WORKERS)
            crew = self._crew = Crew(specs, control, args.max_restarts, self._events.put)
            self._keeper = threading.Thread(
                target=self._keep, args=(crew,), name="octavo-engine", daemon=True
            )
            self._keeper.start()
        except BaseException:
            self.close()
            raise

    def poll(self) -> str | None:
        """None while the processes live or are being restarted, then the root cause: one line."""
        if not self._lost:
            return None
        ending = next((ending for ending in self._lost if ending.cause), self._lost[0])
        restarts = self._crew.num_restarts[ending.role] if self._crew is not None else 0
        return f"{ending}; {restarts} restarts did not help" if restarts else str(ending)

    def close(self) -> None:
        """End the processes and remove their files. May be called twice; does nothing in a fork."""
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.close)
        crew, self._crew = self._crew, None
        if crew is not None:
            self._events.put(Signalled(_CLOSED))
            if self._keeper is not None and self._keeper is not threading.current_thread():
                self._keeper.join()
            end_all(crew.children, within=_END_SECONDS)
            crew.close()
        self._lifeline.cut()
        self._run_dir.close()

    def _keep(self, crew: Crew) -> None:
        """Restart what ends, until told that the engine is closed."""
        while True:
            event = self._events.take(crew.next_beat())
            if isinstance(event, Signalled):
                return
            crew.beat()
            if isinstance(event, Ending) and (lost := crew.ended(event)) is not None:
                self._lost.append(lost)


def start_engine(args: EngineArgs, model: ResolvedModel | None = None) -> EngineProcesses:
    """Start a scheduler and its workers; returns at once, they become ready on their own.

    Raises ModelError when the model cannot be found.
    """
    return EngineProcesses(args, model or resolve_model(args))
