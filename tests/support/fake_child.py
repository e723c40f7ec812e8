"""A process that a supervisor can start in place of a scheduler, a worker or a frontend.

`python -m octavo.tests.support.fake_child CONFIG`: what it does is in its configuration.
"""

import http.server
import os
import signal
import socket
import sys
import threading
from pathlib import Path

import msgspec

from octavo.protocol.lifeline import watch_lifeline


class FakeChild(msgspec.Struct, frozen=True, kw_only=True):
    """What a fake process does."""

    lifeline_fd: int
    parent_pid: int
    listen_fd: int = -1  # serve /health on it
    healthy: bool = True  # what /health says
    dies: str = ""  # last words, said at once
    status: int = 0  # it dies with
    dies_with: str = ""  # role of a process whose end ends this one too, with `status`
    deaf: bool = False  # it ignores SIGTERM
    ends_after: float = 0.0  # seconds from SIGTERM to its end


def main(path: Path) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    told, tell = socket.socketpair()
    tell.setblocking(False)
    signal.set_wakeup_fd(tell.detach())
    signal.signal(signal.SIGTERM, lambda _signal, _frame: None)
    child = msgspec.json.decode(path.read_bytes(), type=FakeChild)
    watch_lifeline(child.lifeline_fd, child.parent_pid)
    if child.dies:
        path.with_suffix(".error").write_text(child.dies + "\n")
        return child.status
    path.with_suffix(".pid").write_text(str(os.getpid()))
    door = _open_door(child, path.parent) if child.listen_fd >= 0 else None
    if child.dies_with:
        _wait_for_end(path.with_name(f"{child.dies_with}.pid"))
        return child.status
    while told.recv(1) and child.deaf:
        continue
    if door is not None:
        door.shutdown()
        door.server_close()
    threading.Event().wait(child.ends_after)
    path.with_suffix(".ended").touch()
    return 0


def _wait_for_end(path: Path) -> None:
    """Wait until the process whose pid is in the file has ended."""
    while not path.exists() or not path.read_text():
        threading.Event().wait(0.01)
    while Path(f"/proc/{path.read_text()}/stat").exists():
        threading.Event().wait(0.001)


def _open_door(child: FakeChild, run_dir: Path) -> http.server.ThreadingHTTPServer:
    """Answer /health on a thread: 200 when every process of the server has come up."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            up = len(list(run_dir.glob("*.pid"))) == len(list(run_dir.glob("*-*.json"))) + 1
            self.send_response(200 if up and child.healthy else 503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    door = http.server.ThreadingHTTPServer(("", 0), Handler, bind_and_activate=False)
    door.socket.close()
    door.socket = socket.socket(fileno=child.listen_fd)
    threading.Thread(target=door.serve_forever, args=(0.01,), daemon=True).start()
    return door


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
