"""Processes that end while requests run: the requests go on, with exactly the tokens they would have had."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import octavo
from octavo.protocol.errors import ProcessDiedError
from octavo.tests.support.background import BackgroundStream
from octavo.tests.support.client import Client
from octavo.tests.support.models import make_ctx_model
from octavo.tests.support.server import Server, start_server
from octavo.tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

WITHIN = 60.0
PROMPT = [5, 6, 7]
BODIES: tuple[dict[str, Any], ...] = (
    {"prompt": PROMPT, "temperature": 0, "max_tokens": 400, "ignore_eos": True},
    {"prompt": [9, 8], "temperature": 1.0, "seed": 3, "max_tokens": 400, "ignore_eos": True},
    {"prompt": [4] * 100, "temperature": 0.8, "seed": 4, "n": 2, "max_tokens": 300, "ignore_eos": True},
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ctx_model(tmp_path_factory.mktemp("ctx"))


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    """A server whose steps take 5 ms, with two frontends."""
    with start_server(
        model, "--device", "sim", "--sim", "step_ms=5,groups=2", "--api-server-count", "2"
    ) as server:
        yield server


@pytest.fixture(scope="module")
def undisturbed(server: Server) -> list[str]:
    """The texts of all bodies when nothing happens."""
    return run_all(server)


def run_all(server: Server, during: Any = None) -> list[str]:
    """Stream all bodies at once, and call `during` when all have begun."""
    streams = [BackgroundStream(server.url, body, WITHIN) for body in BODIES]
    for stream in streams:
        stream.wait_started()
    if during is not None:
        during()
    for stream in streams:
        stream.join(WITHIN)
        assert stream.complete, f"{stream}\n{server.log}"
    return [stream.text for stream in streams]


def health(url: str) -> int:
    return httpx.get(f"{url}/health", timeout=10).status_code


def complete(url: str) -> None:
    with Client(url) as client:
        client.complete(PROMPT, max_tokens=1)


def gauge(url: str, name: str) -> float:
    page = httpx.get(f"{url}/metrics", timeout=10).text
    return sum(float(value) for value in re.findall(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE))


def is_idle(url: str) -> bool:
    names = ('octavo_kv_blocks{state="live"}', "octavo_num_requests_running", "octavo_num_requests_waiting")
    return not any(gauge(url, name) for name in names)


def kill_and_watch(server: Server, role: str) -> None:
    """Kill a process of the engine: /health says so, until a generation can run again."""
    before = server.pids()[role]
    server.kill(role)
    wait_until(lambda: health(server.url) == 503, within=5, what=f"/health notices the end of {role}")
    wait_until(lambda: health(server.url) == 200, within=WITHIN, what=f"{role} is back")
    assert server.pids()[role] != before


@pytest.mark.parametrize("role", ["worker-0-0", "scheduler"])
def test_o57_requests_go_on_behind_the_end_of_an_engine_s_process(
    server: Server, undisturbed: list[str], role: str
) -> None:
    assert run_all(server, lambda: kill_and_watch(server, role)) == undisturbed
    wait_until(lambda: is_idle(server.url), within=5, what="all gauges are back at 0")


def test_the_engine_may_end_as_a_whole(server: Server, undisturbed: list[str]) -> None:
    def kill_both() -> None:
        server.kill("worker-0-0")
        server.kill("scheduler")

    assert run_all(server, kill_both) == undisturbed
    wait_until(lambda: is_idle(server.url), within=5, what="all gauges are back at 0")


def test_the_end_of_a_frontend_ends_its_requests_and_no_others(
    server: Server, undisturbed: list[str]
) -> None:
    streams = [BackgroundStream(server.url, BODIES[0], WITHIN) for _ in range(8)]
    for stream in streams:
        stream.wait_started()
    before = server.pids()["frontend-1"]
    server.kill("frontend-1")
    for stream in streams:
        stream.join(WITHIN)
        assert stream.complete or stream.broken, stream
        assert stream.broken or stream.text == undisturbed[0]
    wait_until(lambda: server.pids()["frontend-1"] != before, within=10, what="frontend-1 is back")
    wait_until(lambda: is_idle(server.url), within=10, what="what it had open is ended")
    assert run_all(server) == undisturbed


def test_new_requests_are_refused_while_the_worker_is_away(model: Path) -> None:
    with start_server(model, "--device", "sim", "--sim", "load_s=2") as server:
        complete(server.url)
        server.kill("worker-0-0")
        wait_until(lambda: health(server.url) == 503, within=2, what="/health notices")
        answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": PROMPT}, timeout=10)
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
        wait_until(lambda: health(server.url) == 200, within=WITHIN, what="the worker is back")
        complete(server.url)


def test_a_drain_outlives_the_end_of_the_worker(model: Path) -> None:
    with start_server(model, "--device", "sim", "--sim", "step_ms=5") as server:
        stream = BackgroundStream(server.url, BODIES[0], WITHIN)
        stream.wait_started()
        server.process.send_signal(signal.SIGTERM)
        server.kill("worker-0-0")
        stream.join(WITHIN)
        assert stream.complete, stream
        assert server.wait_exit(10) == 0


@pytest.mark.full
def test_a_storm_of_restarts_ends_the_server_with_the_child_s_own_words(model: Path) -> None:
    flags = ("--device", "sim", "--sim", "step_ms=1,crash_after=1", "--max-restarts", "1")
    with start_server(model, *flags) as server:
        # The first step of each life succeeds, which is progress: then its end is no storm.
        answer = httpx.post(
            f"{server.url}/v1/completions", json={"prompt": PROMPT, "max_tokens": 4}, timeout=WITHIN
        )
        assert answer.status_code == 200
        kill_and_watch(server, "worker-0-0")
        server.kill("worker-0-0")
        assert server.wait_exit(WITHIN) == ProcessDiedError.exit_status
        last = server.log.splitlines()[-1]
        assert last.startswith("octavo: error: worker-0-0 was ended by SIGKILL; ")
        assert last.endswith("restarts did not help")


@pytest.mark.full
def test_a_request_that_kills_the_worker_is_refused_and_the_others_go_on(model: Path) -> None:
    flags = ("--device", "sim", "--sim", "step_ms=5,vocab=200,poison_token=250")
    with start_server(model, *flags) as server:
        bodies = [{**BODIES[0], "prompt": [20 + at] * 5, "max_tokens": 200} for at in range(7)]

        def texts(*more: dict[str, Any]) -> list[BackgroundStream]:
            streams = [BackgroundStream(server.url, body, WITHIN) for body in (*bodies, *more)]
            for stream in streams:
                stream.join(WITHIN)
            return streams

        undisturbed = texts()
        *others, poisoned = texts({**BODIES[0], "prompt": [20, 250, 20]})
        assert [stream.text for stream in others] == [stream.text for stream in undisturbed], server.log
        assert all(stream.complete for stream in others)
        assert poisoned.error is not None, poisoned
        assert "failed each time" in poisoned.error["message"]
        assert "was ended by SIGABRT" in poisoned.error["message"]
        wait_until(lambda: is_idle(server.url), within=5, what="all gauges are back at 0")
        complete(server.url)


def test_float32_texts_of_a_model_survive_the_ends_of_its_processes(model: Path) -> None:
    bodies = [
        {"prompt": [10 + at] * (3 + at), "max_tokens": 120, "ignore_eos": True, "temperature": at % 2}
        for at in range(4)
    ]
    with start_server(model, "--device", "cpu", "--dtype", "float32", "--cpu-threads", "1") as server:

        def texts(*roles: str) -> list[str]:
            streams = [BackgroundStream(server.url, {**body, "seed": 5}, WITHIN) for body in bodies]
            for stream in streams:
                stream.wait_started()
            for role in roles:
                server.kill(role)
                wait_until(lambda: health(server.url) != 200, within=5, what=f"{role} is missed")
                wait_until(lambda: health(server.url) == 200, within=WITHIN, what=f"{role} is back")
            for stream in streams:
                stream.join(WITHIN)
                assert stream.complete, f"{stream}\n{server.log}"
            return [stream.text for stream in streams]

        undisturbed = texts()
        assert texts("worker-0-0") == undisturbed
        assert texts("scheduler") == undisturbed


PROGRAM = """
import asyncio, sys
from octavo import AsyncEngineArgs, AsyncLLMEngine, LLM, SamplingParams
options = dict(device="sim", sim="step_ms=5", max_restarts=int(sys.argv[2]))
params = SamplingParams(max_tokens=300, temperature=0, ignore_eos=True)

def offline():
    llm = LLM(sys.argv[1], **options)
    ids = llm.generate([{"prompt_token_ids": [5, 6, 7]}], params, use_tqdm=False, stream=True)
    total = []
    for output in ids:
        if not total:
            print("begun", flush=True)
        total += output.outputs[0].token_ids
    print(total, flush=True)
    llm.shutdown()

async def online():
    engine = AsyncLLMEngine.from_engine_args(AsyncEngineArgs(model=sys.argv[1], **options))
    first = True
    async for output in engine.generate({"prompt_token_ids": [5, 6, 7]}, params):
        if first:
            print("begun", flush=True)
        first = False
    print(list(output.outputs[0].token_ids), flush=True)
    engine.shutdown()

try:
    asyncio.run(online()) if sys.argv[3] == "async" else offline()
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""


def run_program(model: Path, kind: str, max_restarts: int, role: str = "") -> str:
    """Run a program with an engine of its own and kill a process of it; returns the program's last line."""
    environment = {**os.environ, "PYTHONPATH": str(Path(octavo.__file__).parents[1])}
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(model), str(max_restarts), kind],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        for child in psutil.Process(program.pid).children():
            if role and child.cmdline()[-1].endswith(f"{role}.json"):
                child.kill()
        out, _ = program.communicate(timeout=WITHIN)
        return out.splitlines()[-1]
    finally:
        program.kill()
        program.wait()


@pytest.mark.parametrize("kind", ["offline", "async"])
def test_the_engine_of_a_program_is_restarted_too(model: Path, kind: str) -> None:
    undisturbed = run_program(model, kind, 3)
    assert undisturbed.startswith("[")
    assert run_program(model, kind, 3, "worker-0-0") == undisturbed
    assert run_program(model, kind, 3, "scheduler") == undisturbed


@pytest.mark.parametrize("kind", ["offline", "async"])
def test_without_restarts_a_program_is_told_the_truth(model: Path, kind: str) -> None:
    said = run_program(model, kind, 0, "worker-0-0")
    assert said == "EngineDeadError worker-0-0 was ended by SIGKILL"
