"""Two worker processes compute each step together: the tokens of one, also behind the end of either."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from octavo.tests.support.background import BackgroundStream
from octavo.tests.support.client import Client
from octavo.tests.support.demo import demo_model
from octavo.tests.support.models import make_ctx_model
from octavo.tests.support.reference import greedy_ids
from octavo.tests.support.server import Server, start_server
from octavo.tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

WITHIN = 90.0
TWO_RANKS = ("--device", "cpu", "--dtype", "float32", "--tensor-parallel-size", "2")
PROMPTS = [[7], [5, 6, 7], list(range(5, 70)), [(11 * j) % 240 + 5 for j in range(150)]]
LONG: dict[str, Any] = {"prompt": [5, 6, 7], "max_tokens": 400, "ignore_eos": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ctx_model(tmp_path_factory.mktemp("ctx"))


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    flags = ("--max-num-batched-tokens", "64", "--kv-cache-memory-bytes", "50000000")
    with start_server(model, *TWO_RANKS, *flags) as server:
        yield server


def ask(url: str, prompt: list[int], max_tokens: int) -> list[int]:
    with Client(url, timeout=WITHIN) as client:
        body = client.complete(
            prompt, max_tokens=max_tokens, temperature=0, ignore_eos=True, return_token_ids=True
        )
    tokens: list[int] = body["choices"][0]["token_ids"]
    return tokens


def check(server: Server, model: Path, prompts: list[list[int]], max_tokens: int) -> None:
    with ThreadPoolExecutor(len(prompts)) as pool:
        found = list(pool.map(lambda prompt: ask(server.url, prompt, max_tokens), prompts))
    assert found == [greedy_ids(model, prompt, max_tokens) for prompt in prompts]


def kill_and_wait(server: Server, role: str) -> None:
    """End one rank, until both are other processes."""
    before = server.pids()

    def is_new(rank: str) -> bool:
        return server.pids().get(rank, before[rank]) != before[rank]

    server.kill(role)
    wait_until(
        lambda: is_new("worker-0-0") and is_new("worker-0-1"),
        within=WITHIN,
        what="both ranks are started again",
    )


def test_tokens_are_those_of_transformers(server: Server, model: Path) -> None:
    check(server, model, PROMPTS, 24)


@pytest.mark.parametrize("role", ["worker-0-1", pytest.param("worker-0-0", marks=pytest.mark.full)])
def test_streams_go_on_behind_the_end_of_a_rank(server: Server, role: str) -> None:
    """Greedy and drawn tokens are those of undisturbed streams, and the whole group is a new one."""
    bodies = [LONG | {"temperature": 0}, LONG | {"temperature": 1.0, "seed": 3}]

    def run(disturb: bool) -> list[str]:
        streams = [BackgroundStream(server.url, body, WITHIN) for body in bodies]
        for stream in streams:
            stream.wait_started()
        if disturb:
            kill_and_wait(server, role)
        for stream in streams:
            stream.join(WITHIN)
            assert stream.complete, f"{stream}\n{server.log}"
        return [stream.text for stream in streams]

    undisturbed = run(False)
    assert run(True) == undisturbed


def test_a_group_without_work_starts_again_too(server: Server, model: Path) -> None:
    kill_and_wait(server, "worker-0-1")
    with Client(server.url, timeout=WITHIN) as client:
        wait_until(client.alive, within=WITHIN, what="the group is ready")
    check(server, model, PROMPTS[:2], 8)


def test_the_demo_model_on_two_ranks() -> None:
    """It has 3 KV heads: one rank has two of them."""
    model = demo_model()
    with start_server(model, *TWO_RANKS, "--max-model-len", "512") as server:
        check(server, model, [[2025, 314, 260, 3575], list(range(1000, 1040))], 20)
