"""A real server for tests: `octavo serve` as a child process, with everything it started in reach."""

import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import psutil

READY_WITHIN = 120.0  # seconds; the two cores of CI may be busy with something else
GONE_WITHIN = 15.0
_POLL = 0.02

_running: "set[Server]" = set()


class Server:
    """A server under test. `stop` ends it and everything it started; so does leaving a `with` block."""

    def __init__(self, command: Callable[[Path], list[str]], env: Mapping[str, str]) -> None:
        """`command` makes the command line for a run directory; `env` is added to the environment."""
        # Short, so that a long TMPDIR of a test does not make socket paths too long.
        self.folder = Path(tempfile.mkdtemp(prefix="octavo-test-", dir="/tmp"))
        self._run_dir = self.folder / "run"
        self.log_path = self.folder / "log"
        self._seen: dict[int, psutil.Process] = {}
        self._state: dict[str, Any] = {}
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command(self._run_dir),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **env},
                start_new_session=True,
            )
        _running.add(self)

    @property
    def run_dir(self) -> Path:
        """Where the server keeps its files: what it says when it is ready, else what it was told."""
        said = re.search(r"; run directory (.+)$", self.log, re.MULTILINE)
        return Path(said[1]) if said else self._run_dir

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        """Everything the server and its children have printed so far."""
        return self.log_path.read_text(errors="replace")

    @property
    def url(self) -> str:
        url: str = self.state()["url"]
        return url

    @property
    def endpoint(self) -> str:
        """Where clients of the scheduler connect."""
        endpoint: str = self.state()["endpoint"]
        return endpoint

    def state(self) -> dict[str, Any]:
        """What the supervisor publishes about itself: empty before, and after its end what was read last.

        A server that is ending may be gone at any moment: a test can still ask where it was.
        """
        with suppress(FileNotFoundError):
            self._state = dict(msgspec.json.decode((self.run_dir / "server.json").read_bytes()))
        return self._state

    def pids(self) -> dict[str, int]:
        """The pid of each process by its role: supervisor, scheduler, worker-0-0, frontend-0, ..."""
        return {"supervisor": self.pid, **self.state().get("processes", {})}

    def tree(self) -> list[psutil.Process]:
        """All live processes that the server is made of, those it started earlier included."""
        if self.process.poll() is None:
            own = psutil.Process(self.pid)
            for found in [own, *own.children(recursive=True)]:
                self._seen[found.pid] = found
        for pid in self.pids().values():
            if pid not in self._seen:
                with suppress(psutil.NoSuchProcess):
                    self._seen[pid] = psutil.Process(pid)
        return [found for found in self._seen.values() if _lives(found)]

    def kill(self, role: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to the process of a role."""
        self.tree()
        os.kill(self.pids()[role], number)

    def wait_ready(self, within: float = READY_WITHIN) -> None:
        """Return when a generation could run. Fails with the log when the server ends before."""
        self.wait_state("ready", within=within)

    def wait_state(self, key: str, *, within: float = READY_WITHIN) -> None:
        """Return when the published state holds `key` with a true value."""
        deadline = time.monotonic() + within
        while not self.state().get(key):
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log}")
            if time.monotonic() > deadline:
                raise AssertionError(f"not {key} within {within} s:\n{self.log}")
            time.sleep(_POLL)
        self.tree()

    def wait_exit(self, within: float) -> int:
        """The exit status; fails with the log when the server is not gone in time."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {within} s:\n{self.log}") from None

    def wait_gone(self, within: float = GONE_WITHIN) -> None:
        """Return when no process of the server is left; fails with the ones that are."""
        deadline = time.monotonic() + within
        children = [found for found in self.tree() if found.pid != self.pid]
        try:
            self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the supervisor is still there after {within} s\n{self.log}") from None
        psutil.wait_procs(children, timeout=max(0.0, deadline - time.monotonic()))
        if left := [found for found in children if _lives(found)]:
            raise AssertionError(f"still there after {within} s: {left}\n{self.log}")

    def stop(self) -> None:
        """End the server as Ctrl-C does, make sure that nothing is left, and remove its files."""
        if self not in _running:
            return
        _running.discard(self)
        tree = self.tree()
        try:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGINT)
                self.wait_exit(within=GONE_WITHIN)
            self.wait_gone()
        finally:
            for found in tree:
                if _lives(found):
                    found.kill()
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait()
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start_server(
    model: str | Path,
    *flags: str,
    env: Mapping[str, str] | None = None,
    wait: bool = True,
    own_run_dir: bool = True,
) -> Server:
    """Serve `model` with these flags on a free port; returns once it is ready unless `wait` is false.

    `env` is added to this process's environment. With `own_run_dir` false the server chooses its run
    directory as it does for users, and its state is known only from when it is ready.
    """

    def command(run_dir: Path) -> list[str]:
        place = ["--port", "0", *(["--run-dir", str(run_dir)] if own_run_dir else [])]
        return [sys.executable, "-m", "octavo", "serve", str(model), *place, *flags]

    server = Server(command, {"OMP_NUM_THREADS": "1", **(env or {})})
    if wait:
        try:
            server.wait_ready()
        except BaseException:
            server.stop()
            raise
    return server


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@atexit.register
def _stop_all() -> None:
    for server in list(_running):
        server.stop()
