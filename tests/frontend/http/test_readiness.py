"""Starting, waiting for the engine, draining: what health says and what requests get."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.frontend.http.app import build_app
from octavo.frontend.http.config import FrontendConfig
from octavo.frontend.http.service import Service
from octavo.protocol.requests import ClientHello
from octavo.tests.support.events import parse_events
from octavo.tests.support.http_frontend import http_frontend
from octavo.tests.support.waiting import wait_until

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    (COMPLETIONS, {"prompt": "x"}),
    (COMPLETIONS, {"prompt": [1], "stream": True}),
    (CHAT, {"messages": [{"role": "user", "content": "hi"}]}),
    ("/generate", {"prompt": "x"}),
    ("/tokenize", {"prompt": "x"}),
]


def unavailable(answer: httpx.Response, reason: str) -> None:
    assert answer.status_code == 503
    assert reason in answer.json()["error"]["message"]
    assert answer.json()["error"]["type"] == "service_unavailable"
    assert answer.headers["retry-after"] == "1"


def test_before_anything_is_loaded_the_answer_is_unavailable() -> None:
    config = FrontendConfig(
        run_dir="", scheduler_endpoint="", lifeline_fd=-1, parent_pid=0, model_path="", served_names=("m",)
    )

    async def ask() -> None:
        transport = httpx.ASGITransport(build_app(Service(config)))
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as http:
            unavailable(await http.get("/health"), "starting")
            assert (await http.get("/health/live")).status_code == 200
            assert (await http.get("/v1/models")).json()["data"][0]["id"] == "m"
            for path, body in REQUESTS:
                unavailable(await http.post(path, json=body), "starting")

    asyncio.run(ask())


def test_health_follows_the_engine(folder: Path) -> None:
    with http_frontend(folder, wait=False) as frontend:
        frontend.scheduler.ready = False
        frontend.scheduler.expect(ClientHello)
        wait_until(lambda: "loading" in frontend.http.get("/health").text, within=5, what="it says why")
        unavailable(frontend.http.get("/health"), "loading")
        for path, body in REQUESTS[:-1]:
            unavailable(frontend.http.post(path, json=body), "loading")
        frontend.scheduler.ready = True
        wait_until(lambda: frontend.http.get("/health").status_code == 200, within=5, what="it is ready")
        assert frontend.http.post(COMPLETIONS, json={"prompt": "x"}).status_code == 200


def test_a_draining_server_ends_what_runs_and_takes_nothing_new(folder: Path) -> None:
    with http_frontend(folder, shutdown_timeout=20.0) as frontend:
        frontend.scheduler.step_seconds = 0.01
        frontend.say("abc", eos=False)
        body = {"prompt": "x", "stream": True, "max_tokens": 100}
        with frontend.http.stream("POST", COMPLETIONS, json=body) as stream:
            parts = stream.iter_bytes()
            content = next(parts)
            stopping = threading.Thread(target=frontend.stop)
            stopping.start()
            wait_until(
                lambda: httpx.get(f"{frontend.url}/health").status_code == 503, within=5, what="it drains"
            )
            unavailable(httpx.post(f"{frontend.url}{COMPLETIONS}", json={"prompt": "x"}), "shutting down")
            content += b"".join(parts)
        events = parse_events(content)
        assert events.finish == {0: ["length"]}
        assert events.done
        stopping.join(timeout=5)
        assert not stopping.is_alive()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{frontend.url}/health")


@pytest.mark.parametrize("why", ["time", "told"])
def test_what_cannot_end_in_time_ends_with_an_error(folder: Path, why: str) -> None:
    with http_frontend(folder, shutdown_timeout=0.3 if why == "time" else 60.0) as frontend:
        frontend.scheduler.step_seconds = 0.02
        frontend.say("abc", eos=False)
        body = {"prompt": "x", "stream": True, "max_tokens": 250}
        with frontend.http.stream("POST", COMPLETIONS, json=body) as stream:
            parts = stream.iter_bytes()
            content = next(parts)
            began = time.monotonic()
            stopping = threading.Thread(target=frontend.stop, kwargs={"at_once": why == "told"})
            stopping.start()
            content += b"".join(parts)
        events = parse_events(content)
        assert len(events.errors) == 1
        assert events.errors[0]["type"] == "service_unavailable"
        assert events.errors[0]["message"] == "the server is shutting down"
        assert events.finish == {}
        stopping.join(timeout=5)
        assert time.monotonic() - began < 5
