"""The processes of a server or of an engine: started, watched over, and started again when they end."""

import logging
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...protocol.errors import RankLostError
from .children import Child, ChildSpec, Ending, kill_all
from .metrics import mark_dead
from .restarts import Restarts
from .watch import EngineWatch, is_same_group

_log = logging.getLogger(__name__)

_BEAT_SECONDS = 1.0
_STARTING_BEAT_SECONDS = 0.01  # a process may end right behind the first answer
_ANSWER_SECONDS = 2.0  # for a scheduler that lives to say how far it has come
_SILENT_SECONDS = 20.0  # a scheduler that answers nothing for so long hangs
_OWN_FAULTS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
_SCHEDULER = "scheduler"


@dataclass(frozen=True, slots=True)
class _Hang:
    """Why a process was ended."""

    why: str
    stopped: bool  # by somebody outside


class Crew:
    """Not thread-safe: everything is called on the thread that reads the endings.

    Attributes:
        num_restarts: of each process, by its role.
    """

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        control: str,
        max_restarts: int,
        on_end: Callable[[Ending], None],
    ) -> None:
        """Start all, in order. `control` is the endpoint of the scheduler for workers.

        `on_end` is called with each end, on a thread; it is to bring the ending back to `ended`.
        """
        self._on_end = on_end
        self._restarts = Restarts(max_restarts)
        self._watch = EngineWatch(control)
        self._due: dict[str, tuple[float, ChildSpec]] = {}  # when which process starts again
        self._hung: dict[int, _Hang] = {}  # by pid: processes that were ended here
        self._beat_due = time.monotonic()
        self._children: dict[str, Child] = {}
        self.num_restarts: dict[str, int] = {spec.role: 0 for spec in specs}
        try:
            for spec in specs:
                self._start(spec)
        except BaseException:
            self.close()
            raise

    @property
    def children(self) -> list[Child]:
        """The latest life of each process."""
        return list(self._children.values())

    def next_beat(self) -> float:
        """When `beat` is to be called, a time of `time.monotonic`."""
        return min([self._beat_due, *(due for due, _ in self._due.values())])

    def beat(self) -> bool:
        """Start what is due, and look after those that hang; True when a process was started."""
        now = time.monotonic()
        if now >= self._beat_due:
            self._look()
            self._beat_due = now + (_BEAT_SECONDS if self._watch.was_ready else _STARTING_BEAT_SECONDS)
        due = [spec for at, spec in self._due.values() if at <= now]
        for spec in due:
            del self._due[spec.role]
            self.num_restarts[spec.role] += 1
            self._start(spec)
        return bool(due)

    def ended(self, ending: Ending) -> Ending | None:
        """A process ended. None when it will be started again, else the ending, with all that is known.

        A process that ends before a generation could ever run is not: such a start would fail again.
        """
        child = self._children.get(ending.role)
        if child is None or child.pid != ending.pid:
            return None
        ending = self._explained(ending)
        if not self._restarts.limit:
            return ending
        scheduler = self._children[_SCHEDULER]
        if ending.role == _SCHEDULER:
            self._watch.read()  # what it said before its end
            self._watch.forget()
        elif scheduler.ending is None:
            self._watch.ask()
            self._look(within=_ANSWER_SECONDS)
        if not self._watch.was_ready:
            return ending
        mark_dead(child.spec.metrics, ending.pid)
        at = self._restarts.ended(ending.role, time.monotonic(), self._watch.progress)
        self._watch.tell_ended(ending.role, ending.pid, ending.how, fault=self._is_fault(ending))
        if at is None:
            return ending
        _log.warning("%s; it is started again", ending)
        self._due[ending.role] = at, child.spec
        self._end_group(ending.role)
        return None

    def stays_ended(self, role: str) -> None:
        """A process that has ended, and waits for its restart, does so in vain."""
        self._due.pop(role, None)

    def close(self) -> None:
        """End all processes at once."""
        self._due.clear()
        kill_all(self.children)
        self._watch.close()

    def _start(self, spec: ChildSpec) -> None:
        self._restarts.started(spec.role, time.monotonic())
        self._children[spec.role] = Child(spec, self._on_end)

    def _look(self, within: float = 0.0) -> None:
        """Take in what the scheduler says, ask again, and end processes that hang."""
        stuck = self._watch.read(within)
        for child in self.children:
            if child.pid in stuck and child.ending is None:
                self._end_hung(child, "it made no progress with a step")
        scheduler = self._children.get(_SCHEDULER)
        if scheduler is not None and self._watch.silence > _SILENT_SECONDS:
            self._watch.forget()
            self._end_hung(scheduler, f"it answered nothing for {_SILENT_SECONDS:g} s")
        self._watch.ask()

    def _end_hung(self, child: Child, why: str) -> None:
        stopped = _is_stopped(child.pid)
        self._hung[child.pid] = _Hang(f"{why}, stopped from outside" if stopped else why, stopped)
        _log.warning("%s is ended: %s", child.role, self._hung[child.pid].why)
        child.signal(signal.SIGKILL)

    def _end_group(self, role: str) -> None:
        """A rank is gone, and the others of its group cannot go on: they start again together."""
        for child in self.children:
            if child.role != role and child.ending is None and is_same_group(child.role, role):
                _log.warning("%s is ended: its group lost %s", child.role, role)
                child.signal(signal.SIGKILL)

    def _explained(self, ending: Ending) -> Ending:
        hang = self._hung.get(ending.pid)
        return ending if hang is None else replace(ending, cause=ending.cause or hang.why)

    def _is_fault(self, ending: Ending) -> bool:
        """Whether the process failed by itself, which something it was doing may have caused."""
        hang = self._hung.pop(ending.pid, None)
        if hang is not None:
            return not hang.stopped
        if ending.status == RankLostError.exit_status:
            return False
        return ending.status > 0 or -ending.status in _OWN_FAULTS


def _is_stopped(pid: int) -> bool:
    """Whether somebody stopped the process, as SIGSTOP does."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        return False
