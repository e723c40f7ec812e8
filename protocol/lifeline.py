"""No process outlives its parent: a pipe that only the parent holds open, and a watch on the parent's pid.

The parent keeps the write end; each child inherits the read end and exits when it reads end-of-file, which
the kernel delivers however the parent died. Forks of the parent close their copy of the write end, so that an
unrelated child of a user's program cannot hold it open.
"""

import os
import threading
import time
from collections.abc import Callable

_POLL_SECONDS = 1.0
ORPHANED = 70  # exit status of a child whose parent is gone


class Lifeline:
    """The parent's side. `read_fd` is what children inherit (`subprocess.Popen(pass_fds=...)`)."""

    def __init__(self) -> None:
        self.read_fd, self._write_fd = os.pipe()
        os.register_at_fork(after_in_child=self._close_in_fork)

    def _close_in_fork(self) -> None:
        self.cut()

    def cut(self) -> None:
        """Close both ends in this process: every child that watches ends. May be called twice."""
        for name in ("read_fd", "_write_fd"):
            fd = getattr(self, name)
            if fd >= 0:
                setattr(self, name, -1)
                os.close(fd)


def _exit_now() -> None:
    os._exit(ORPHANED)


def watch_lifeline(read_fd: int, parent_pid: int, on_orphaned: Callable[[], None] = _exit_now) -> None:
    """End this process when its parent is gone. Call before anything heavy is imported.

    `on_orphaned` runs on a watching thread; the default exits at once without cleaning up.
    """

    def watch_pipe() -> None:
        while os.read(read_fd, 1):
            pass
        on_orphaned()

    def watch_pid() -> None:
        while os.getppid() == parent_pid:
            time.sleep(_POLL_SECONDS)
        on_orphaned()

    threading.Thread(target=watch_pipe, name="lifeline-pipe", daemon=True).start()
    threading.Thread(target=watch_pid, name="lifeline-pid", daemon=True).start()
