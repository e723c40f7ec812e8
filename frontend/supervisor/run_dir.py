"""The private directory of one server: sockets, configurations, metrics, last words of its processes."""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from ...protocol.errors import UsageError

_SOCKET_PATH_MAX = 107  # bytes of a Unix socket's path on Linux
_LONGEST_SOCKET = "/clients"
_PREFIX = "octavo"
_OPTIONS = os.O_RDONLY | os.O_DIRECTORY


class RunDir:
    """A directory that only this user can enter. `close` removes it.

    Its owner holds a lock on it, which the kernel releases however the owner dies: a directory without the
    lock is a leftover. The lock also keeps systemd from clearing it out of /tmp as unused.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock
        self._owner = os.getpid()
        self.metrics.mkdir(exist_ok=True)

    @property
    def metrics(self) -> Path:
        """Where processes keep their metrics, see prometheus_client's multiprocess mode."""
        return self.path / "metrics"

    def endpoint(self, name: str) -> str:
        """The ZeroMQ endpoint of the socket `name`."""
        return f"ipc://{self.path}/{name}"

    def close(self) -> None:
        """Remove the directory and let the lock go. May be called twice; does nothing in a fork."""
        if self._lock < 0 or os.getpid() != self._owner:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        self._lock = -1


def create_run_dir() -> RunDir:
    """A new directory under a short temporary directory.

    Removes what dead servers of this user left there.
    """
    base = short_temporary_dir()
    _remove_leftovers(base)
    # Locked before it gets the name that others look for: no moment in which it seems to be a leftover.
    hidden = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}-", dir=base))
    lock = _try_lock(hidden)
    path = base / f"{_name_start()}{hidden.name.rpartition('-')[2]}"
    hidden.rename(path)
    return RunDir(path, lock)


def use_run_dir(path: Path) -> RunDir:
    """The directory that the user wants, made if it is missing.

    Raises UsageError when its path is too long for sockets, it is somebody else's, it holds other things, or
    a running server uses it.
    """
    path = path.absolute()
    if not _fits(path):
        raise UsageError(
            f"the run directory {path} is too long: with the name of a socket its path must stay within "
            f"{_SOCKET_PATH_MAX} bytes",
            param="run_dir",
        )
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        lock = _try_lock(path)
        if lock < 0:
            raise UsageError(f"the run directory {path} is in use by a running server", param="run_dir")
        _clear(path)
    except OSError as error:
        raise UsageError(f"cannot use the run directory {path}: {error.strerror}", param="run_dir") from error
    return RunDir(path, lock)


def _clear(path: Path) -> None:
    """Remove what an earlier server left; refuse a directory that was never a run directory."""
    content = list(path.iterdir())
    if content and not (path / "metrics").is_dir():
        raise UsageError(f"the run directory {path} holds other things", param="run_dir")
    for item in content:
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item)
        else:
            item.unlink()


def short_temporary_dir() -> Path:
    """The system's temporary directory, or /tmp where a run directory's sockets would not fit below it."""
    chosen = Path(tempfile.gettempdir())
    return chosen if _fits(chosen / f"{_name_start()}xxxxxxxx" / "run") else Path("/tmp")


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) + len(_LONGEST_SOCKET) <= _SOCKET_PATH_MAX


def _name_start() -> str:
    return f"{_PREFIX}-{os.getuid()}-"


def _remove_leftovers(base: Path) -> None:
    for path in base.glob(f"{_name_start()}*"):
        try:
            if path.is_symlink() or path.stat().st_uid != os.getuid():
                continue
            lock = _try_lock(path)
        except OSError:
            continue  # another server removes it at this moment
        if lock >= 0:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _try_lock(path: Path) -> int:
    """A descriptor that holds the directory's lock, or -1 when somebody else holds it."""
    descriptor = os.open(path, _OPTIONS)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return -1
    return descriptor
