"""Where Octavo keeps what it fetched or converted: one folder in the user's cache."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def default_cache_dir() -> Path:
    """`$XDG_CACHE_HOME/octavo`, or `~/.cache/octavo` (XDG base directory specification)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "octavo"


def build_folder_once(folder: Path, fill: Callable[[Path], None]) -> Path:
    """Return `folder`, after building it with `fill(staging_folder)` if it does not exist yet.

    A folder is either absent or complete: it is filled beside its place and renamed. Of several processes
    that come at once one builds, the others wait for it. An error of `fill` leaves nothing behind.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / f".{folder.name}.lock"):
        if not folder.is_dir():
            _remove_leftovers(folder)
            staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
            try:
                fill(staging)
                staging.chmod(0o755)
                staging.rename(folder)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    return folder


def _remove_leftovers(folder: Path) -> None:
    """Remove what a killed builder left; only the holder of the lock may call this."""
    for stale in folder.parent.glob(f".{folder.name}.*/"):
        shutil.rmtree(stale)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    # The lock file stays: removing it would let a third process lock a file that no longer has a name.
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
