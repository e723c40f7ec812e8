"""A program that starts a scheduler and a worker of its own."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from octavo.frontend.engine.args import EngineArgs
from octavo.frontend.engine.async_client import AsyncClient
from octavo.frontend.supervisor.engine import EngineProcesses, start_engine
from octavo.protocol.errors import ModelError, UsageError
from octavo.protocol.sampling import SamplingParams
from octavo.tests.support.models import make_ctx_model
from octavo.tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

WITHIN = 20.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ctx_model(tmp_path_factory.mktemp("ctx"))


@pytest.fixture
def engine(model: Path) -> Iterator[EngineProcesses]:
    engine = start_engine(EngineArgs(model=str(model), device="sim", max_restarts=0))
    yield engine
    engine.close()


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if child.status() != "zombie"]


def generate(endpoint: str, num_tokens: int) -> int:
    """Ask the engine for tokens; returns how many came."""

    async def ask() -> int:
        client = AsyncClient(None)
        client.connect(endpoint)
        try:
            await client.wait_ready(WITHIN)
            params = SamplingParams(max_tokens=num_tokens, temperature=0, detokenize=False)
            stream = client.submit([5, 6, 7], params)
            return sum(
                [len(choice.token_ids) async for update in client.updates(stream) for choice in update]
            )
        finally:
            client.close()

    return asyncio.run(ask())


def test_it_generates_and_leaves_nothing_behind(model: Path) -> None:
    engine = start_engine(EngineArgs(model=str(model), device="sim"))
    assert generate(engine.endpoint, 7) == 7
    assert len(children()) == 2
    assert engine.poll() is None
    engine.close()
    engine.close()
    assert children() == []
    assert not Path(engine.endpoint.removeprefix("ipc://")).parent.exists()


@pytest.mark.parametrize("role", ["scheduler", "worker-0-0"])
def test_the_root_cause_names_the_process_that_was_killed(engine: EngineProcesses, role: str) -> None:
    (child,) = [child for child in children() if child.cmdline()[-1].endswith(f"{role}.json")]
    child.send_signal(signal.SIGKILL)
    wait_until(lambda: engine.poll() is not None, within=WITHIN, what="the end is noticed")
    assert engine.poll() == f"{role} was ended by SIGKILL"


def test_the_root_cause_is_the_worker_s_own_error(model: Path) -> None:
    engine = start_engine(EngineArgs(model=str(model), device="sim", sim="fail_load=true"))
    wait_until(lambda: engine.poll() is not None, within=WITHIN, what="the end is noticed")
    assert str(engine.poll()).startswith("worker-0-0 ended (3): ModelError: ")
    engine.close()


def test_a_missing_model_is_an_error_before_anything_starts() -> None:
    with pytest.raises(ModelError, match="/no/such/folder"):
        start_engine(EngineArgs(model="/no/such/folder"))
    assert children() == []


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_quantization_without_cuda_is_refused_before_anything_starts(model: Path, device: str) -> None:
    with pytest.raises(UsageError, match="quantization 'fp8' runs on CUDA only") as caught:
        start_engine(EngineArgs(model=str(model), device=device, quantization="fp8"))
    assert caught.value.param == "quantization" and "\n" not in str(caught.value)
    assert children() == []


PROGRAM = """
import os, signal, sys
from octavo.frontend.engine.args import EngineArgs
from octavo.frontend.supervisor.engine import start_engine
engine = start_engine(EngineArgs(model=sys.argv[1], device="sim"))
{more}
print(engine.endpoint.removeprefix("ipc://"), flush=True)
sys.stdin.read()
"""


def run_program(model: Path, more: str = "") -> tuple["subprocess.Popen[str]", list[psutil.Process], Path]:
    """A program with an engine: the program, the engine processes, a path in the run directory."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(more=more), str(model)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    path = Path(program.stdout.readline().strip())
    return program, psutil.Process(program.pid).children(), path


def gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != "zombie" for process in processes)


def finish(program: "subprocess.Popen[str]") -> None:
    program.communicate(timeout=WITHIN)


def test_a_program_that_forgets_to_close_leaves_nothing_behind(model: Path) -> None:
    program, engine, path = run_program(model)
    finish(program)
    assert gone(engine)
    assert not path.parent.exists()


def test_a_killed_program_leaves_no_process_behind(model: Path) -> None:
    program, engine, _ = run_program(model)
    program.kill()
    finish(program)
    wait_until(lambda: gone(engine), within=15, what="the engine ends with its program")


def test_a_fork_of_the_program_ends_nobody(model: Path) -> None:
    fork = "if os.fork() == 0: sys.exit(0)\nos.wait()"
    program, engine, path = run_program(model, fork)
    assert len(engine) == 2
    assert not gone(engine)
    assert path.parent.exists()
    finish(program)


def test_children_run_in_a_session_of_their_own(engine: EngineProcesses) -> None:
    """Ctrl-C in a terminal reaches the program, which decides what happens to its engine."""
    assert {os.getsid(child.pid) for child in children()}.isdisjoint({os.getsid(0)})
