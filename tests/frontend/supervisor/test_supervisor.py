"""A supervisor over processes that do what a test wants: how a server starts, and every way it ends."""

import json
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from octavo.frontend.supervisor.supervisor import INTERRUPTED
from octavo.protocol.errors import ModelError, ProcessDiedError
from octavo.tests.support.server import Server
from octavo.tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

Fields = dict[str, object]
Serve = Callable[..., Server]

ROLES = ("worker-0-0", "scheduler", "frontend-0", "frontend-1")
SOON = 5.0  # seconds within which Ctrl-C ends everything
ORPHANS_GONE = 15.0


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a supervisor; keywords give a role's process more to do (`worker_0_0={...}`)."""
    servers: list[Server] = []

    def start(*, shutdown_timeout: float = 5.0, ready: bool = True, **more: Fields) -> Server:
        processes = {role: more.get(role.replace("-", "_"), {}) for role in ROLES}

        def command(run_dir: Path) -> list[str]:
            arguments = [str(run_dir), json.dumps(processes), str(shutdown_timeout)]
            return [sys.executable, "-m", "octavo.tests.support.fake_server", *arguments]

        server = Server(command, {})
        servers.append(server)
        if ready:
            server.wait_ready()
        return server

    yield start
    for server in servers:
        server.stop()


def is_listening(url: str) -> bool:
    parts = urlsplit(url)
    with socket.socket() as client:
        return client.connect_ex((str(parts.hostname), int(parts.port or 0))) == 0


def ends(server: Server, within: float) -> int:
    """Wait for the end of the whole server: its status."""
    tree, url = server.tree(), server.url
    status = server.wait_exit(within)
    assert not any(process.is_running() for process in tree)
    assert not is_listening(url)
    assert not server.run_dir.exists()
    return status


def test_it_publishes_itself_and_is_ready_when_health_says_so(serve: Serve) -> None:
    server = serve()
    state = server.state()
    assert set(state["processes"]) == set(ROLES)
    assert state["pid"] == server.pid
    assert is_listening(state["url"])
    assert server.log.splitlines()[-1] == state["url"]


def test_it_is_not_ready_before_health_says_so(serve: Serve) -> None:
    unhealthy = {"healthy": False}
    server = serve(frontend_0=unhealthy, frontend_1=unhealthy, ready=False)
    server.wait_state("processes")
    time.sleep(0.3)  # nothing is to happen
    assert server.state()["ready"] is False
    server.process.send_signal(signal.SIGINT)
    assert server.wait_exit(SOON) == INTERRUPTED


def test_o60_ctrl_c_ends_everything_soon(serve: Serve) -> None:
    server = serve(frontend_0={"ends_after": 60}, scheduler={"deaf": True})
    server.process.send_signal(signal.SIGINT)
    assert ends(server, SOON) == INTERRUPTED


def test_o60_a_second_ctrl_c_ends_everything_at_once(serve: Serve) -> None:
    server = serve(frontend_0={"ends_after": 60}, scheduler={"deaf": True})
    server.process.send_signal(signal.SIGINT)
    wait_until(lambda: not is_listening(server.url), within=SOON, what="the first one is noticed")
    server.process.send_signal(signal.SIGINT)
    assert ends(server, 1.0) == INTERRUPTED


def test_o60_ctrl_c_while_processes_start(serve: Serve) -> None:
    server = serve(ready=False)
    server.wait_state("url")
    server.process.send_signal(signal.SIGINT)
    assert ends(server, SOON) == INTERRUPTED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_o60_sigterm_lets_frontends_finish_before_the_engine(serve: Serve, number: int) -> None:
    server = serve(frontend_0={"ends_after": 1.0})
    url = server.url
    server.process.send_signal(number)
    wait_until(lambda: not is_listening(url), within=SOON, what="connections are refused")
    wait_until((server.run_dir / "frontend-1.ended").exists, within=SOON, what="the idle frontend ends")
    assert not (server.run_dir / "frontend-0.ended").exists()
    assert not (server.run_dir / "scheduler.ended").exists()
    wait_until((server.run_dir / "frontend-0.ended").exists, within=SOON, what="the busy frontend ends")
    assert ends(server, SOON) == 0


def test_a_drain_is_bounded(serve: Serve) -> None:
    server = serve(frontend_0={"ends_after": 60}, shutdown_timeout=0.1)
    server.process.send_signal(signal.SIGTERM)
    assert ends(server, 4.0) == 0
    assert "still running" in server.log


def test_o60_ctrl_c_cuts_a_drain_short(serve: Serve) -> None:
    server = serve(frontend_0={"ends_after": 60}, shutdown_timeout=60)
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not is_listening(server.url), within=SOON, what="the drain begins")
    server.process.send_signal(signal.SIGINT)
    assert ends(server, SOON) == INTERRUPTED


@pytest.mark.parametrize("role", ROLES)
def test_o57_a_killed_process_ends_the_server_with_its_name(serve: Serve, role: str) -> None:
    server = serve()
    server.kill(role)
    assert ends(server, 10.0) == ProcessDiedError.exit_status
    assert server.log.splitlines()[-1] == f"error: {role} was ended by SIGKILL"


def test_a_failed_start_ends_the_server_with_the_child_s_own_words(serve: Serve) -> None:
    words = {"dies": "ModelError: shard 2 is missing", "status": ModelError.exit_status}
    server = serve(worker_0_0=words, ready=False)
    assert server.wait_exit(10.0) == ModelError.exit_status
    assert server.log.splitlines()[-1] == "error: worker-0-0: shard 2 is missing"


def test_an_unexpected_exception_of_a_child_is_named(serve: Serve) -> None:
    server = serve(scheduler={"dies": "ZeroDivisionError: division by zero", "status": 1}, ready=False)
    assert server.wait_exit(10.0) == ProcessDiedError.exit_status
    last = server.log.splitlines()[-1]
    assert last == "error: scheduler ended (1): ZeroDivisionError: division by zero"


def test_the_root_cause_is_not_the_process_that_was_taken_along(serve: Serve) -> None:
    """A frontend that ends because the worker did may be noticed first."""
    server = serve(frontend_0={"dies_with": "frontend-1", "status": 1})
    (server.run_dir / "worker-0-0.error").write_text("OutOfMemoryError: 3 GiB are missing\n")
    server.kill("frontend-1")
    server.kill("worker-0-0")
    assert ends(server, 10.0) == 5
    assert server.log.splitlines()[-1] == "error: worker-0-0: 3 GiB are missing"


def test_a_child_that_ends_by_itself_with_0_ends_the_server(serve: Serve) -> None:
    server = serve()
    server.kill("worker-0-0", signal.SIGTERM)
    assert ends(server, 10.0) == ProcessDiedError.exit_status
    assert server.log.splitlines()[-1] == "error: worker-0-0 ended (0)"


def test_o57_the_end_of_the_engine_during_a_drain_is_not_success(serve: Serve) -> None:
    server = serve(frontend_0={"ends_after": 60}, shutdown_timeout=60)
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not is_listening(server.url), within=SOON, what="the drain begins")
    server.kill("scheduler")
    assert ends(server, 10.0) == ProcessDiedError.exit_status


def test_o60_a_killed_supervisor_leaves_no_orphan(serve: Serve) -> None:
    server = serve(frontend_0={"ends_after": 60}, scheduler={"deaf": True})
    server.kill("supervisor")
    server.wait_gone(ORPHANS_GONE)
    assert not is_listening(server.url)
