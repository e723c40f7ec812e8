"""How many frontends a server has, and that they share its port."""

import signal

import httpx
import pytest

from octavo.frontend.supervisor.serve import frontends_for
from octavo.tests.support.demo import demo_model
from octavo.tests.support.server import start_server
from octavo.tests.support.waiting import wait_until


@pytest.mark.parametrize(("cores", "frontends"), [(1, 1), (2, 1), (7, 1), (8, 2), (16, 4), (256, 8)])
def test_frontends_by_cores(cores: int, frontends: int) -> None:
    assert frontends_for(cores) == frontends


@pytest.mark.e2e
def test_each_frontend_answers_at_the_one_port() -> None:
    with start_server(demo_model(), "--device", "sim", "--api-server-count", "2") as server:
        health = f"{server.url}/health"
        for stopped in ("frontend-0", "frontend-1"):
            server.kill(stopped, signal.SIGSTOP)
            try:
                # The server is ready with its first frontend; the other may still read its tokenizer.
                wait_until(lambda: httpx.get(health, timeout=30).is_success, within=60, what="it is there")
                body = {"prompt": "x", "max_tokens": 1}
                answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=30)
                assert answer.status_code == 200
            finally:
                server.kill(stopped, signal.SIGCONT)
