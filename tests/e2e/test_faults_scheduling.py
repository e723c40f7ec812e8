"""Cancellation, memory and fairness with real processes and the simulated device."""

import http.client
import json
import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from octavo.tests.support.client import Client, frames
from octavo.tests.support.models import make_ctx_model
from octavo.tests.support.server import start_server
from octavo.tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

B = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ctx_model(tmp_path_factory.mktemp("ctx"))


def serve(folder: Path, *flags: str, step_ms: float = 2.0) -> Iterator[Client]:
    server = start_server(
        folder, "--device", "sim", "--sim", f"step_ms={step_ms}", "--block-size", str(B), *flags
    )
    client = Client(server.url)
    yield client
    client.close()
    server.stop()


@pytest.fixture
def narrow(folder: Path) -> Iterator[Client]:
    yield from serve(folder, "--max-num-seqs", "1", "--max-model-len", "2048")


@pytest.fixture(scope="module")
def wide(folder: Path) -> Iterator[Client]:
    yield from serve(
        folder, "--max-num-seqs", "8", "--num-gpu-blocks-override", "64", "--max-model-len", "1024"
    )


@pytest.fixture(scope="module")
def tiny(folder: Path) -> Iterator[Client]:
    yield from serve(folder, "--num-gpu-blocks-override", "8", "--max-model-len", "1024")


def open_request(client: Client, body: dict[str, Any]) -> socket.socket:
    """Send a request on a socket of its own and leave the answer unread."""
    url = urlparse(client.url)
    connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=10)
    connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    assert connection.sock is not None
    return connection.sock


def running(client: Client) -> float:
    return client.metric("octavo_num_requests_running")


def waiting(client: Client) -> float:
    return client.metric("octavo_num_requests_waiting")


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
def test_o37_a_vanished_client_ends_its_requests(narrow: Client, stream: bool) -> None:
    long = {"prompt": [5] * 8, "max_tokens": 2000, "ignore_eos": True, "stream": stream}
    first = open_request(narrow, long)
    wait_until(lambda: running(narrow) == 1, within=5, what="the first request runs")
    second = open_request(narrow, {**long, "prompt": [6] * 999, "max_tokens": 1000})
    wait_until(lambda: waiting(narrow) == 1, within=5, what="the second request waits")
    second.close()
    first.close()
    wait_until(lambda: running(narrow) + waiting(narrow) == 0, within=2, what="both are gone")
    made = narrow.metric("octavo_generation_tokens_total")
    assert narrow.complete([7], max_tokens=1)["usage"]["completion_tokens"] == 1
    assert narrow.metric("octavo_generation_tokens_total") <= made + 1
    assert narrow.metric("octavo_prompt_tokens_total") < 999


def test_o38_aborts_leak_no_block(wide: Client) -> None:
    rng = random.Random(3)

    def one(number: int) -> None:
        body = {"prompt": [rng.randrange(5, 250) for _ in range(rng.randrange(1, 200))], "ignore_eos": True}
        if number % 2:
            assert wide.post("/v1/completions", {**body, "max_tokens": 20}).status_code == 200
            return
        with closing(open_request(wide, {**body, "max_tokens": 400, "stream": True})) as sock:
            sock.settimeout(10)
            for _ in range(rng.randrange(3)):
                sock.recv(400)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(200)))
    wait_until(
        lambda: wide.metric("octavo_kv_blocks", state="live") == 0,
        within=5,
        what="no block is live when idle",
    )
    assert wide.metric("octavo_kv_blocks", state="cached") > 0
    whole = wide.complete([5] * (62 * B), max_tokens=B, ignore_eos=True)
    assert whole["usage"]["completion_tokens"] == B


@pytest.mark.parametrize(
    "body",
    [{"prompt": [5] * (9 * B)}, {"prompt": [5] * (7 * B), "max_tokens": 3 * B}],
    ids=["prompt", "output"],
)
def test_o39_a_request_larger_than_the_pool_blocks_nobody(tiny: Client, body: dict[str, Any]) -> None:
    tiny.refused("/v1/completions", body)
    assert tiny.complete([5], max_tokens=5, ignore_eos=True)["usage"]["completion_tokens"] == 5


def test_o44_a_stream_goes_on_while_a_long_prompt_is_read(folder: Path) -> None:
    budget = 32
    flags = ("--max-num-batched-tokens", str(budget), "--max-model-len", "2048", "--no-enable-prefix-caching")
    for client in serve(folder, *flags, step_ms=20):
        body = {"prompt": [5], "max_tokens": 80, "ignore_eos": True, "stream": True}
        with (
            client.http.stream("POST", "/v1/completions", json=body) as stream,
            ThreadPoolExecutor(1) as pool,
        ):
            pieces = frames(stream)
            next(pieces)
            steps = client.metric("octavo_step_seconds_count", phase="device")
            long = pool.submit(client.complete, [6] * (20 * budget), max_tokens=1)
            between = 0
            for _ in pieces:
                between += not long.done()
            assert long.result()["usage"]["completion_tokens"] == 1
            taken = client.metric("octavo_step_seconds_count", phase="device") - steps
        assert between >= 20
        assert taken <= 2 * 80 + 40


def test_o45_two_requests_with_one_id_are_both_answered(wide: Client) -> None:
    def ask(prompt: list[int]) -> str:
        body = {"prompt": prompt, "max_tokens": 40, "ignore_eos": True, "temperature": 0}
        response = wide.http.post("/v1/completions", json=body, headers={"X-Request-Id": "same"})
        assert response.status_code == 200
        text: str = response.json()["choices"][0]["text"]
        return text

    prompts = [[5, 6, 7], [8, 9, 10]]
    alone = [ask(prompt) for prompt in prompts]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(ask, prompts)) == alone
    assert alone[0] != alone[1]
    assert wide.alive()
    assert running(wide) == waiting(wide) == 0
