"""A queue at its bound, and deadlines, over HTTP and ZeroMQ, with real processes and the simulated device."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from octavo.protocol.ids import FinishReason
from octavo.protocol.replies import Rejected
from octavo.tests.scheduler_proc.server import TestClient
from octavo.tests.support.client import Client
from octavo.tests.support.models import make_ctx_model
from octavo.tests.support.server import Server, start_server
from octavo.tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

ROWS, QUEUE, TOKENS = 4, 8, 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ("--device", "sim", "--sim", "step_ms=15", "--max-model-len", "1024")
    bounds = ("--max-num-seqs", str(ROWS), "--max-queued-requests", str(QUEUE))
    with start_server(make_ctx_model(tmp_path_factory.mktemp("ctx")), *flags, *bounds) as server:
        yield server


def waiting(client: Client) -> float:
    return client.metric("octavo_num_requests_waiting")


def test_who_is_refused_is_told_how_long_the_queue_is(server: Server) -> None:
    with Client(server.url) as client, ThreadPoolExecutor(ROWS + QUEUE) as pool:
        body = {"prompt": [5] * 8, "max_tokens": TOKENS, "ignore_eos": True}
        answers = [pool.submit(client.post, "/v1/completions", body) for _ in range(ROWS + QUEUE)]
        wait_until(lambda: waiting(client) == QUEUE, within=20, what="the queue is full")
        refused = client.post("/v1/completions", body)
        began = time.monotonic()
        foreign = TestClient(server.endpoint)
        foreign.wait_ready()
        foreign.submit(1, [5] * 8)
        told = foreign.expect(Rejected)
        foreign.close()
        wait_until(lambda: waiting(client) == 0, within=60, what="all have begun")
        truth = time.monotonic() - began
        assert [answer.result().status_code for answer in answers] == [200] * (ROWS + QUEUE)
    assert refused.status_code == 429 and refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert told.kind == "QueueFullError"
    for forecast in (int(refused.headers["retry-after-ms"]) / 1e3, told.retry_after):
        assert truth / 2 <= forecast <= 2 * truth, f"told {forecast:.2f} s, and it took {truth:.2f} s"


def test_deadlines_hold_in_the_queue_and_between_steps_at_both_doors(server: Server) -> None:
    with Client(server.url) as client, ThreadPoolExecutor(ROWS + 1) as pool:
        long = {"prompt": [6] * 8, "max_tokens": 400, "ignore_eos": True, "timeout": 2.0}
        running = [pool.submit(client.post, "/v1/completions", long) for _ in range(ROWS)]
        wait_until(
            lambda: client.metric("octavo_num_requests_running") == ROWS, within=20, what="all rows are taken"
        )
        prompts = client.metric("octavo_prompt_tokens_total")
        queued = pool.submit(client.post, "/v1/completions", {"prompt": [7] * 99, "timeout": 0.2})
        foreign = TestClient(server.endpoint)
        foreign.wait_ready()
        foreign.submit(1, [7] * 99, timeout=0.2)
        foreign.wait_ended(1)
        assert foreign.finish[1, 0] is FinishReason.TIMEOUT and not foreign.tokens[1, 0]
        foreign.close()
        assert [answer.result().status_code for answer in (queued, *running)] == [504] * (ROWS + 1)
        assert client.metric("octavo_prompt_tokens_total") == prompts, "what expired was never read"
