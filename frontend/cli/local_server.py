"""A server of one's own, for commands that need one to talk to."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...protocol.errors import StartupError
from ...protocol.lifeline import Lifeline
from ..supervisor.published import FILE_NAME, ServerInfo
from ..supervisor.python import python_environment, python_module
from ..supervisor.run_dir import short_temporary_dir


class LocalServer:
    """`octavo serve` on a free port, as a child that ends with this process unless it is to be kept."""

    def __init__(self, model: str, flags: Sequence[str], *, keep: bool) -> None:
        """Start it and wait until it answers. Raises a StartupError when it does not; its log says why."""
        self._folder = Path(tempfile.mkdtemp(prefix="octavo-chat-", dir=short_temporary_dir()))
        self.log_path = self._folder / "log"
        self._lifeline = None if keep else Lifeline()
        fds = () if self._lifeline is None else (self._lifeline.read_fd,)
        tied = [part for fd in fds for part in ("--lifeline-fd", str(fd))]
        place = ["--port", "0", "--run-dir", str(self._folder / "run")]
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*python_module(), "serve", model, *place, *tied, *flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=fds,
                env=python_environment(),
                start_new_session=True,  # Ctrl-C is for the conversation
            )
        self.info = self._wait()

    def _wait(self) -> ServerInfo:
        """It says one line when it is ready, and closes the pipe when it ends."""
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            lines = self.log_path.read_text(errors="replace").strip().splitlines()
            self.close()
            raise _as_error(self._process.returncode, (lines or ["the server ended"])[-1])
        return msgspec.json.decode((self._folder / "run" / FILE_NAME).read_bytes(), type=ServerInfo)

    def close(self) -> None:
        """End it and remove its files."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._lifeline is not None:
            self._lifeline.cut()
        self.log_path.unlink(missing_ok=True)
        os.rmdir(self._folder)


def _as_error(status: int, last_line: str) -> StartupError:
    """The server's own error: same line, same exit status."""
    kinds = (kind for kind in StartupError.__subclasses__() if kind.exit_status == status)
    return next(kinds, StartupError)(last_line.removeprefix("octavo: error: "))
