"""A server of one's own, for commands that need one to talk to."""

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import msgspec

from ...protocol.errors import StartupError
from ...protocol.lifeline import Lifeline
from ..supervisor.published import FILE_NAME, ServerInfo
from ..supervisor.python import python_environment, python_module


class LocalServer:
    """`octavo serve` on a free port, as a child that ends with this process unless it is to be kept."""

    def __init__(self, model: str, flags: Sequence[str], *, keep: bool) -> None:
        """Start it and wait until it answers. Raises a StartupError when it does not; its log says why.

        A server that is kept logs to the file `log_path`. Another's log has no name: nothing of it is left,
        however this process ends.
        """
        self._log, self.log_path = _open_log(keep=keep)
        self._lifeline = None if keep else Lifeline()
        fds = () if self._lifeline is None else (self._lifeline.read_fd,)
        tied = [part for fd in fds for part in ("--lifeline-fd", str(fd))]
        self._process = subprocess.Popen(
            [*python_module(), "serve", model, "--port", "0", *tied, *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            pass_fds=fds,
            env=python_environment(),
            start_new_session=True,  # Ctrl-C is for the conversation
        )
        self.info = self._wait()

    def _wait(self) -> ServerInfo:
        """It says one line when it is ready, and closes the pipe when it ends."""
        assert self._process.stdout is not None
        said = re.search(r"; run directory (.+)$", self._process.stdout.readline().decode())
        if said is None:
            self._end()
            error = _as_error(self._process.returncode, self._last_line() or "the server ended")
            self._log.close()
            raise error
        return msgspec.json.decode((Path(said[1]) / FILE_NAME).read_bytes(), type=ServerInfo)

    def log(self) -> str:
        """What it and its processes have written so far."""
        # Not sought: the server writes where this descriptor, which it has inherited, stands.
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")

    def _last_line(self) -> str:
        return self.log().strip().rpartition("\n")[2]

    def close(self) -> None:
        """End it and wait until it is gone."""
        self._end()
        self._log.close()

    def _end(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._lifeline is not None:
            self._lifeline.cut()


def _open_log(*, keep: bool) -> tuple[IO[bytes], Path]:
    if not keep:
        return tempfile.TemporaryFile(), Path(os.devnull)
    descriptor, path = tempfile.mkstemp(prefix="octavo-chat-", suffix=".log")
    return os.fdopen(descriptor, "w+b"), Path(path)


def _as_error(status: int, last_line: str) -> StartupError:
    """The server's own error: same line, same exit status."""
    kinds = (kind for kind in StartupError.__subclasses__() if kind.exit_status == status)
    return next(kinds, StartupError)(last_line.removeprefix("octavo: error: "))
