"""How the ranks of a group find each other: rank 0 names a file that all of them write their addresses to.

Ranks start in any order, and a group may be started many times in one run directory, after ends of any kind.
Rank 0 of each life draws a new name and tells it to those who connect to its socket, which nobody answers
once all have come, or once it is dead: so no rank can meet one of an earlier life.
"""

import socket
import time
from contextlib import suppress
from pathlib import Path

from ...protocol.errors import RankLostError
from ...protocol.ids import new_incarnation

_RETRY_SECONDS = 0.05
_ANSWER_SECONDS = 10.0


def meeting_file(run_dir: Path, group: int, rank: int, size: int, *, within: float) -> Path:
    """The file of this life of the group, the same for each of its ranks.

    Raises RankLostError when not all have come `within` so many seconds.
    """
    path, deadline = run_dir / f"group-{group}", time.monotonic() + within
    try:
        return _host(path, size, deadline) if rank == 0 else _visit(path, deadline)
    except TimeoutError as error:
        raise RankLostError(
            f"the ranks of group {group} did not meet within {within:g} s: one of {size} is not there"
        ) from error


def _host(path: Path, size: int, deadline: float) -> Path:
    file = path.with_name(f"{path.name}-{new_incarnation():x}")
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(size)
        told = 1
        while told < size:
            listener.settimeout(_left(deadline))
            visitor, _ = listener.accept()
            # One that has gone again comes back as another, or not at all.
            with visitor, suppress(ConnectionError):
                visitor.sendall(file.name.encode())
                told += 1
    path.unlink(missing_ok=True)
    return file


def _visit(path: Path, deadline: float) -> Path:
    while True:
        with socket.socket(socket.AF_UNIX) as host, suppress(ConnectionError, FileNotFoundError):
            host.settimeout(_ANSWER_SECONDS)
            host.connect(str(path))
            if name := host.makefile("rb").read():
                return path.with_name(name.decode())
        _left(deadline)
        time.sleep(_RETRY_SECONDS)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
