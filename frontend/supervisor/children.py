"""Starting one process of a server, and knowing how it ended."""

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .python import python_environment, python_module

_STDERR = 2
_KILLED_WITHIN = 5.0  # seconds; only a process that hangs in the kernel takes longer


@dataclass(frozen=True)
class ChildSpec:
    """What to start: `python -m <module> <config>`. The configuration's stem is the process's role."""

    module: str  # below the package, such as "scheduler_proc"
    config: Path  # its only argument
    pass_fds: tuple[int, ...]  # descriptors that it inherits
    metrics: Path  # directory for its metrics files

    @property
    def role(self) -> str:
        return self.config.stem


@dataclass(frozen=True)
class Ending:
    """How a process ended."""

    role: str
    pid: int
    status: int  # exit status, or minus the signal that ended it
    cause: str  # its own last words, `Kind: message`; empty when it left none

    @property
    def how(self) -> str:
        """What is known of the end, for people."""
        how = f"was ended by {_signal_name(-self.status)}" if self.status < 0 else f"ended ({self.status})"
        return f"{how}: {self.cause}" if self.cause else how

    def __str__(self) -> str:
        return f"{self.role} {self.how}"


class Child:
    """A process that was started. It runs in a session of its own, out of reach of the terminal's Ctrl-C."""

    def __init__(self, spec: ChildSpec, on_end: Callable[[Ending], None] | None = None) -> None:
        """Start it. `on_end` is called once, on a thread, when it has ended."""
        self.spec = spec
        self._last_words.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [*python_module(spec.module), str(spec.config)],
            stdin=subprocess.DEVNULL,
            stdout=_STDERR,
            pass_fds=spec.pass_fds,
            env=python_environment(PROMETHEUS_MULTIPROC_DIR=str(spec.metrics)),
            start_new_session=True,
        )
        self._ended = threading.Event()
        self.ending: Ending | None = None
        threading.Thread(target=self._watch, args=(on_end,), name=f"watch-{self.role}", daemon=True).start()

    @property
    def role(self) -> str:
        return self.spec.role

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        """Send a signal unless it has ended."""
        if not self._ended.is_set():
            self._process.send_signal(number)

    def wait(self, seconds: float) -> bool:
        """Wait for its end; False when it is still there."""
        return self._ended.wait(max(0.0, seconds))

    def _watch(self, on_end: Callable[[Ending], None] | None) -> None:
        status = self._process.wait()
        self.ending = Ending(self.role, self.pid, status, self._read_last_words())
        self._ended.set()
        if on_end is not None:
            on_end(self.ending)

    @property
    def _last_words(self) -> Path:
        return self.spec.config.with_suffix(".error")

    def _read_last_words(self) -> str:
        try:
            return self._last_words.read_text(errors="replace").strip()
        except FileNotFoundError:
            return ""


def end_all(children: Sequence[Child], *, within: float, number: int = signal.SIGTERM) -> None:
    """Ask the children to end, by a signal, and after `within` seconds end those that did not."""
    for child in children:
        child.signal(number)
    deadline = time.monotonic() + within
    for child in children:
        child.wait(deadline - time.monotonic())
    kill_all(children)


def kill_all(children: Sequence[Child]) -> None:
    """End the children at once."""
    for child in children:
        child.signal(signal.SIGKILL)
    for child in children:
        child.wait(_KILLED_WITHIN)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
