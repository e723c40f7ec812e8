"""A frontend process to be measured, beside those of a server."""

import os
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from ...protocol.config import load_config, save_config
from ...protocol.lifeline import Lifeline
from ..http.config import FrontendConfig
from ..supervisor.python import python_environment, python_module

_NEVER = 1 << 40


class OneFrontend:
    """Serves the engine of a server on a port of its own, and never joins tokens because it is behind.

    Attributes:
        url: where it listens. pid: of the process.
    """

    def __init__(self, server_run_dir: Path) -> None:
        """`server_run_dir` is the run directory of a server that is ready."""
        self._folder = tempfile.TemporaryDirectory(prefix="octavo-bench-", dir="/tmp")
        run_dir = Path(self._folder.name)
        (run_dir / "metrics").mkdir()
        self._lifeline = Lifeline()
        listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        given = load_config(server_run_dir / "frontend-0.json", FrontendConfig)
        config = FrontendConfig(
            run_dir=str(run_dir),
            scheduler_endpoint=given.scheduler_endpoint,
            lifeline_fd=self._lifeline.read_fd,
            parent_pid=os.getpid(),
            listen_fds=(listener.fileno(),),
            model_path=given.model_path,
            served_names=given.served_names,
            most_behind=_NEVER,
        )
        path = run_dir / "frontend-0.json"
        save_config(config, path)
        self._process = subprocess.Popen(
            [*python_module("frontend"), str(path)],
            pass_fds=(self._lifeline.read_fd, listener.fileno()),
            env=python_environment(PROMETHEUS_MULTIPROC_DIR=str(run_dir / "metrics")),
        )
        listener.close()
        self.pid = self._process.pid

    def __enter__(self) -> "OneFrontend":
        """Wait until it is ready."""
        while self._process.poll() is None:
            with suppress(urllib.error.HTTPError), urllib.request.urlopen(f"{self.url}/health"):
                return self
        raise RuntimeError(f"the frontend ended with status {self._process.returncode}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lifeline.cut()
        self._process.wait()
        self._folder.cleanup()
