"""Health, sockets, shutdown and start-up with real processes and the simulated device."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from octavo.frontend.supervisor.supervisor import INTERRUPTED
from octavo.protocol.errors import PortInUseError, ProcessDiedError
from octavo.tests.support.client import Client, frames
from octavo.tests.support.models import make_ctx_model
from octavo.tests.support.server import Server, start_server
from octavo.tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

SIM = ("--device", "sim")
NEVER_READY = ("--device", "sim", "--sim", "load_s=300")
ORPHANS_GONE = 15.0
CTRL_C = 5.0

Serve = Callable[..., Server]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ctx_model(tmp_path_factory.mktemp("ctx"))


@pytest.fixture
def serve(model: Path) -> Iterator[Serve]:
    """Start servers of the model; all end with the test."""
    servers: list[Server] = []

    def start(*flags: str, folder: Path = model, **options: object) -> Server:
        servers.append(start_server(folder, *flags, **options))  # type: ignore[arg-type]
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


class OpenStream:
    """A stream that is read on a thread; what came of it is known when it has ended."""

    def __init__(self, url: str, max_tokens: int) -> None:
        self.started = threading.Event()
        self.error: dict[str, object] | None = None
        self.finish: str | None = None
        self.broken = False
        body = {"prompt": [5, 6, 7], "max_tokens": max_tokens, "ignore_eos": True, "stream": True}
        self._thread = threading.Thread(target=self._read, args=(f"{url}/v1/completions", body))
        self._thread.start()
        assert self.started.wait(10), "no token comes"

    def _read(self, url: str, body: dict[str, object]) -> None:
        try:
            with httpx.stream("POST", url, json=body, timeout=60) as response:
                for frame in frames(response):
                    self.started.set()
                    self._take(frame)
        except httpx.HTTPError:
            self.broken = True

    def _take(self, frame: str) -> None:
        if frame == "[DONE]":
            return
        chunk = json.loads(frame)
        self.error = chunk.get("error", self.error)
        for choice in chunk.get("choices", ()):
            self.finish = choice["finish_reason"] or self.finish

    def ended(self, within: float) -> None:
        self._thread.join(within)
        assert not self._thread.is_alive(), f"the stream hangs for {within} s"


def is_listening(url: str) -> bool:
    parts = urlsplit(url)
    with socket.socket() as client:
        return client.connect_ex((str(parts.hostname), int(parts.port or 0))) == 0


def is_alive(url: str) -> bool:
    client = Client(url)
    try:
        return client.alive()
    finally:
        client.close()


def health(url: str) -> int:
    """The status of /health; 0 when nobody answers."""
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code
    except httpx.HTTPError:
        return 0


@pytest.mark.parametrize("role", ["scheduler", "worker-0-0"])
def test_o57_a_dead_engine_is_not_healthy_and_nothing_hangs(serve: Serve, role: str) -> None:
    server = serve(*SIM, "--sim", "step_ms=5", "--max-restarts", "0")
    url = server.url
    stream = OpenStream(url, max_tokens=1900)
    server.kill(role)
    wait_until(lambda: health(url) != 200, within=5, what="/health tells")
    stream.ended(within=10)
    assert stream.error is not None, "the open stream gets an error frame"
    assert stream.finish not in ("stop", "length")
    assert server.wait_exit(10) == ProcessDiedError.exit_status
    assert server.log.splitlines()[-1] == f"octavo: error: {role} was ended by SIGKILL"
    server.wait_gone()


def test_o59_a_long_temporary_directory(serve: Serve) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        long = Path(folder) / ("t" * 150)
        long.mkdir()
        server = serve(*SIM, env={"TMPDIR": str(long)}, own_run_dir=False)
        assert is_alive(server.url)
        run_dir = server.run_dir
        assert run_dir.exists()
        server.stop()
        assert not run_dir.exists()
        assert list(long.iterdir()) == []


def test_o59_a_long_model_path(serve: Serve, model: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        long = Path(folder) / ("m" * 100) / ("n" * 100)
        shutil.copytree(model, long)
        assert is_alive(serve(*SIM, folder=long).url)


def test_o59_two_servers_at_once(serve: Serve) -> None:
    first, second = (serve(*SIM, own_run_dir=False) for _ in range(2))
    assert first.run_dir != second.run_dir
    assert is_alive(first.url)
    assert is_alive(second.url)
    first.stop()
    assert is_alive(second.url)


def test_o59_a_leftover_of_a_killed_server(serve: Serve, model: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        run_dir = Path(folder) / "run"
        flags = (*SIM, "--run-dir", str(run_dir))
        killed = start_server(model, *flags, own_run_dir=False)
        killed.kill("supervisor")
        killed.wait_gone()
        assert (run_dir / "clients").is_socket()
        killed.stop()
        again = serve(*flags, own_run_dir=False)
        assert is_alive(again.url)
        again.stop()
        assert not run_dir.exists()


def test_o60_ctrl_c_while_idle(serve: Serve) -> None:
    server = serve(*SIM)
    url = server.url
    server.process.send_signal(signal.SIGINT)
    assert server.wait_exit(CTRL_C) == INTERRUPTED
    server.wait_gone(0.5)
    assert not is_listening(url)
    assert not server.run_dir.exists()


def test_o60_ctrl_c_while_loading(serve: Serve) -> None:
    server = serve(*NEVER_READY, wait=False)
    server.wait_state("processes")
    server.process.send_signal(signal.SIGINT)
    assert server.wait_exit(CTRL_C) == INTERRUPTED
    server.wait_gone(0.5)


@pytest.mark.parametrize("times", [1, 2])
def test_o60_ctrl_c_under_load(serve: Serve, times: int) -> None:
    server = serve(*SIM, "--sim", "step_ms=5")
    streams = [OpenStream(server.url, max_tokens=1900) for _ in range(4)]
    for _ in range(times):
        server.process.send_signal(signal.SIGINT)
    assert server.wait_exit(CTRL_C) == INTERRUPTED
    server.wait_gone(0.5)
    for stream in streams:
        stream.ended(within=1)
        assert stream.finish not in ("stop", "length")


def test_o60_sigterm_lets_an_open_stream_finish_and_refuses_others(serve: Serve) -> None:
    server = serve(*SIM, "--sim", "step_ms=10")
    url = server.url
    stream = OpenStream(url, max_tokens=300)
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: health(url) != 200, within=2, what="readiness turns off")
    with pytest.raises(httpx.HTTPError):
        httpx.post(f"{url}/v1/completions", json={"prompt": [5], "max_tokens": 1}).raise_for_status()
    stream.ended(within=20)
    assert stream.finish == "length"
    assert stream.error is None
    assert server.wait_exit(CTRL_C) == 0
    server.wait_gone(0.5)
    assert not is_listening(url)


def test_o60_sigterm_gives_a_long_stream_an_error_frame_in_the_end(serve: Serve) -> None:
    server = serve(*SIM, "--sim", "step_ms=20", "--shutdown-timeout", "1")
    stream = OpenStream(server.url, max_tokens=1900)
    server.process.send_signal(signal.SIGTERM)
    stream.ended(within=10)
    assert stream.error is not None
    assert stream.finish not in ("stop", "length")
    assert server.wait_exit(CTRL_C) == 0


@pytest.mark.parametrize("role", ["supervisor", "frontend-0", "scheduler", "worker-0-0"])
@pytest.mark.parametrize("when", ["loading", "loaded"])
def test_o60_a_kill_leaves_no_orphan(serve: Serve, role: str, when: str) -> None:
    flags = NEVER_READY if when == "loading" else (*SIM, "--max-restarts", "0")
    server = serve(*flags, wait=when == "loaded")
    server.wait_state("processes")
    url = server.url
    stream = OpenStream(url, max_tokens=1900) if when == "loaded" else None
    server.kill(role)
    server.wait_gone(ORPHANS_GONE)
    # The last thread of a process that is gone closes its sockets a moment later.
    wait_until(lambda: not is_listening(url), within=5, what="the port is free")
    if stream is not None:
        stream.ended(within=1)


def test_o60_kills_in_any_order_leave_no_orphan(serve: Serve) -> None:
    server = serve(*SIM)
    for role in ("worker-0-0", "supervisor", "frontend-0"):
        server.kill(role)
    server.wait_gone(ORPHANS_GONE)


def test_o61_a_taken_port_is_named_before_the_model_loads(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "octavo", "serve", str(model), "--port", str(port)]
        began = time.monotonic()
        done = subprocess.run([*command, *NEVER_READY], capture_output=True, text=True, timeout=20)
    assert done.returncode == PortInUseError.exit_status
    assert done.stderr == f"octavo: error: port {port} of 127.0.0.1 is taken by another process\n"
    assert done.stdout == ""
    assert time.monotonic() - began < 5


def test_o61_a_large_prompt_does_not_freeze_health(serve: Serve) -> None:
    server = serve(*SIM, "--sim", "step_ms=5")
    stream = OpenStream(server.url, max_tokens=500)
    posted: list[int] = []

    def post() -> None:
        body = {"prompt": "the cat sat on the mat " * 220_000, "max_tokens": 1}
        posted.append(httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).status_code)

    poster = threading.Thread(target=post)
    poster.start()
    gaps = []
    with httpx.Client(base_url=server.url, timeout=10) as client:
        while poster.is_alive():
            began = time.monotonic()
            assert client.get("/health").status_code == 200
            gaps.append(time.monotonic() - began)
            poster.join(0.05)
    assert posted == [400], "5 MB are more than the context holds"
    assert max(gaps) < 0.5
    stream.ended(within=20)
    assert stream.finish == "length"
