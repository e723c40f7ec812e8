"""Scheduler and workers as children of a Python program that is its own frontend."""

import atexit
import os

from ...protocol.lifeline import Lifeline
from ..engine.args import EngineArgs
from ..engine.resolve import ResolvedModel, resolve_model
from .children import Child, Ending, end_all
from .configs import CLIENTS, engine_specs
from .run_dir import create_run_dir

_END_SECONDS = 3.0


class EngineProcesses:
    """A running scheduler with its workers. They end with this process, however it ends."""

    def __init__(self, args: EngineArgs, model: ResolvedModel) -> None:
        self._owner = os.getpid()
        self._run_dir = create_run_dir()
        self._lifeline = Lifeline()
        self._endings: list[Ending] = []
        self.endpoint = self._run_dir.endpoint(CLIENTS)
        self.model = model
        atexit.register(self.close)
        try:
            specs = engine_specs(args, model, self._run_dir, self._lifeline)
            self._children = [Child(spec, self._endings.append) for spec in specs]
        except BaseException:
            self._children = []
            self.close()
            raise

    def poll(self) -> str | None:
        """None while all processes live, then the root cause: one line."""
        if not self._endings:
            return None
        return str(next((ending for ending in self._endings if ending.cause), self._endings[0]))

    def close(self) -> None:
        """End the processes and remove their files. May be called twice; does nothing in a fork."""
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.close)
        end_all(self._children, within=_END_SECONDS)
        self._lifeline.cut()
        self._run_dir.close()


def start_engine(args: EngineArgs, model: ResolvedModel | None = None) -> EngineProcesses:
    """Start a scheduler and its workers; returns at once, they become ready on their own.

    Raises ModelError when the model cannot be found.
    """
    return EngineProcesses(args, model or resolve_model(args))
