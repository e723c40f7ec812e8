"""The frontend as a process: sockets it inherits, signals, lifeline, last words, metrics of several."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from octavo.frontend.http.config import FrontendConfig
from octavo.frontend.text import Tokenizer
from octavo.protocol.config import save_config
from octavo.protocol.errors import ModelError, PortInUseError, UsageError
from octavo.protocol.lifecycle import ModelLimits
from octavo.protocol.lifeline import ORPHANED, Lifeline
from octavo.tests.support.fake_scheduler import short_run_dir
from octavo.tests.support.scripted_scheduler import ScriptedScheduler
from octavo.tests.support.waiting import wait_until

GONE_WITHIN = 15


class Processes:
    """Frontend processes that share a listening socket, a scheduler and a run directory."""

    def __init__(self, run_dir: Path, folder: Path) -> None:
        self.run_dir, self.folder = run_dir, folder
        (run_dir / "metrics").mkdir()
        self.lifeline = Lifeline()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, **fields: object) -> subprocess.Popen[bytes]:
        index = len(self.started)
        settings = {
            "run_dir": str(self.run_dir),
            "scheduler_endpoint": f"ipc://{self.run_dir}/clients",
            "lifeline_fd": self.lifeline.read_fd,
            "parent_pid": os.getpid(),
            "index": index,
            "listen_fds": (self.listener.fileno(),),
            "model_path": str(self.folder),
            "served_names": ("m",),
            **fields,
        }
        path = self.run_dir / f"frontend-{index}.json"
        save_config(FrontendConfig(**settings), path)  # type: ignore[arg-type]
        process = subprocess.Popen(
            [sys.executable, "-m", "octavo.frontend", str(path)],
            pass_fds=[self.lifeline.read_fd, self.listener.fileno()],
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(self.run_dir / "metrics")},
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def last_words(self, index: int = 0) -> str:
        return (self.run_dir / f"frontend-{index}.error").read_text()

    def wait_ready(self) -> None:
        def ready() -> bool:
            try:
                return httpx.get(f"{self.url}/health").status_code == 200
            except httpx.TransportError:
                return False

        wait_until(ready, within=30, what="a frontend is ready")

    def close(self) -> None:
        self.lifeline.cut()
        for process in self.started:
            process.wait(GONE_WITHIN)
        self.listener.close()


@pytest.fixture
def processes(folder: Path) -> Iterator[Processes]:
    with short_run_dir() as run_dir:
        processes = Processes(run_dir, folder)
        yield processes
        processes.close()


@pytest.fixture
def scheduler(processes: Processes) -> Iterator[ScriptedScheduler]:
    tokenizer = Tokenizer.load(processes.folder)
    limits = ModelLimits("m", tokenizer.vocab_size, 256, 256, tokenizer.eos_token_ids)
    scheduler = ScriptedScheduler(f"ipc://{processes.run_dir}/clients", limits, lambda submit, index: [50])
    yield scheduler
    scheduler.close()


def test_it_serves_on_an_inherited_socket_and_ends_with_sigterm(
    processes: Processes, scheduler: ScriptedScheduler
) -> None:
    process = processes.start()
    processes.wait_ready()
    answer = httpx.post(f"{processes.url}/v1/completions", json={"prompt": "x", "max_tokens": 3})
    assert answer.json()["choices"][0]["text"] == "PPP"
    os.kill(process.pid, signal.SIGINT)
    assert httpx.get(f"{processes.url}/health").status_code == 200
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(GONE_WITHIN) == 0
    assert not (processes.run_dir / "frontend-0.error").exists()


def test_it_answers_before_it_is_ready(processes: Processes) -> None:
    processes.start()
    answer = httpx.get(f"{processes.url}/health", timeout=30)
    assert answer.status_code == 503
    assert httpx.get(f"{processes.url}/health/live").status_code == 200


def test_it_ends_with_its_parent(processes: Processes, scheduler: ScriptedScheduler) -> None:
    process = processes.start()
    processes.wait_ready()
    processes.lifeline.cut()
    assert process.wait(GONE_WITHIN) == ORPHANED


def test_sigterm_while_it_loads_ends_it(processes: Processes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    os.mkfifo(tmp_path / "tokenizer_config.json")  # whoever reads it waits
    (tmp_path / "tokenizer.json").write_bytes((processes.folder / "tokenizer.json").read_bytes())
    process = processes.start(model_path=str(tmp_path))
    httpx.get(f"{processes.url}/health/live", timeout=30)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(GONE_WITHIN) == 0


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        (lambda tmp: {"model_path": str(tmp / "nowhere")}, ModelError.exit_status, "ModelError: "),
        (lambda tmp: {"served_names": 5}, UsageError.exit_status, "UsageError: cannot read"),
    ],
    ids=["no model", "bad configuration"],
)
def test_it_leaves_last_words(
    processes: Processes,
    tmp_path: Path,
    fields: Callable[[Path], dict[str, object]],
    status: int,
    words: str,
) -> None:
    assert processes.start(**fields(tmp_path)).wait(GONE_WITHIN) == status
    assert processes.last_words().startswith(words)
    assert processes.last_words().count("\n") == 1


def test_a_taken_port_is_named(processes: Processes) -> None:
    port = processes.listener.getsockname()[1]
    process = processes.start(listen_fds=(), port=port)
    assert process.wait(GONE_WITHIN) == PortInUseError.exit_status
    assert str(port) in processes.last_words()


def test_several_frontends_show_one_sum(processes: Processes, scheduler: ScriptedScheduler) -> None:
    for _ in range(2):
        processes.start()
    processes.wait_ready()
    wait_until(lambda: scheduler.num_clients == 2, within=30, what="both are connected")
    for _ in range(20):
        # A connection of its own each time: either process may take it.
        answer = httpx.post(f"{processes.url}/v1/completions", json={"prompt": "x", "max_tokens": 2})
        assert answer.status_code == 200
    page = httpx.get(f"{processes.url}/metrics").text
    assert "octavo_generation_tokens_total 40.0" in page
    assert 'octavo_request_success_total{finished_reason="length"} 20.0' in page


def test_a_frontend_loads_no_torch() -> None:
    code = """
import sys
import octavo.frontend.http.frontend, octavo.frontend.http.process
heavy = {"torch", "transformers", "numpy", "triton"} & set(sys.modules)
sys.exit(f"loaded: {heavy}" if heavy else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
