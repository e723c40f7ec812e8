"""Failures before and behind the headers, and clients that go away."""

import http.client
import json
import socket
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from octavo.protocol.replies import Rejected
from octavo.protocol.requests import Abort, Submit
from octavo.tests.support.events import parse_events
from octavo.tests.support.http_frontend import HttpFrontend
from octavo.tests.support.waiting import wait_until

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
BODIES = [(COMPLETIONS, {"prompt": "x"}), (CHAT, {"messages": HI}), ("/generate", {"prompt": "x"})]
KINDS = ["completions", "chat", "generate"]


def connect(frontend: HttpFrontend, path: str, body: dict[str, Any]) -> http.client.HTTPConnection:
    """A request on a connection of its own, its answer unread."""
    url = urlsplit(frontend.url)
    connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=10)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    return connection


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), BODIES, ids=KINDS)
@pytest.mark.parametrize(
    ("kind", "status", "kind_over_http"),
    [
        ("QueueFullError", 429, "rate_limit_error"),
        ("InvalidRequestError", 400, "invalid_request_error"),
        ("RequestTimeoutError", 504, "timeout_error"),
        ("EngineUnavailableError", 503, "service_unavailable"),
        ("NeverHeardOfError", 500, "internal_error"),
    ],
)
def test_a_refusal_of_the_scheduler_is_a_plain_status(
    frontend: HttpFrontend,
    path: str,
    body: dict[str, Any],
    stream: bool,
    kind: str,
    status: int,
    kind_over_http: str,
) -> None:
    frontend.scheduler.refuse = lambda s: Rejected(s.request, s.attempt, kind, "because", retry_after=1.2)
    answer = frontend.http.post(path, json={**body, "stream": stream})
    assert answer.status_code == status
    assert answer.json()["error"] == {
        "message": "because",
        "type": kind_over_http,
        "param": None,
        "code": "rate_limit_exceeded" if status == 429 else None,
    }
    assert answer.headers["retry-after"] == "2" and answer.headers["retry-after-ms"] == "1200"


@pytest.mark.parametrize(("path", "body"), BODIES, ids=KINDS)
def test_headers_wait_until_the_request_is_queued(
    frontend: HttpFrontend, path: str, body: dict[str, Any]
) -> None:
    frontend.scheduler.accept.clear()
    connection = connect(frontend, path, {**body, "stream": True})
    frontend.scheduler.expect(Submit)
    assert connection.sock is not None
    connection.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        connection.sock.recv(1, socket.MSG_PEEK)
    connection.sock.settimeout(10)
    frontend.scheduler.go.clear()
    frontend.scheduler.accept.set()
    answer = connection.getresponse()  # before the first token
    assert answer.status == 200
    frontend.scheduler.go.set()
    assert b"[DONE]" in answer.read() if path != "/generate" else answer.read() == b"hello"
    connection.close()


@pytest.mark.parametrize(("path", "body"), BODIES[:2], ids=KINDS[:2])
def test_o35_a_failure_in_a_stream_is_an_event_and_the_end(
    frontend: HttpFrontend, path: str, body: dict[str, Any]
) -> None:
    frontend.scheduler.step_seconds = 0.01
    frontend.scheduler.fail_after = lambda submit: (3, "RequestFailedError", "the device is gone")
    began = time.monotonic()
    connection = connect(frontend, path, {**body, "stream": True})
    events = parse_events(connection.getresponse().read())
    assert [error["message"] for error in events.errors] == ["the device is gone"]
    assert events.errors[0]["type"] == "internal_error"
    assert events.finish == {}
    assert not events.done
    assert connection.sock is None or connection.sock.recv(1) == b""
    assert time.monotonic() - began < 5
    connection.close()


def test_o35_a_plain_text_stream_that_fails_is_cut_off(frontend: HttpFrontend) -> None:
    frontend.scheduler.step_seconds = 0.01
    frontend.scheduler.fail_after = lambda submit: (2, "RequestFailedError", "the device is gone")
    connection = connect(frontend, "/generate", {"prompt": "x", "stream": True})
    with pytest.raises(http.client.IncompleteRead):
        connection.getresponse().read()
    connection.close()


@pytest.mark.parametrize(("path", "body"), BODIES, ids=KINDS)
def test_a_failure_of_a_whole_answer_is_a_status(
    frontend: HttpFrontend, path: str, body: dict[str, Any]
) -> None:
    frontend.scheduler.fail_after = lambda submit: (2, "RequestTimeoutError", "too late")
    answer = frontend.http.post(path, json=body)
    assert answer.status_code == 504
    assert answer.json()["error"]["message"] == "too late"


def test_one_failing_prompt_ends_the_others(frontend: HttpFrontend) -> None:
    def fail_second(submit: Submit) -> tuple[int, str, str] | None:
        return (2, "RequestFailedError", "broken") if submit.name.endswith("-1") else None

    frontend.scheduler.step_seconds = 0.01
    frontend.scheduler.fail_after = fail_second
    frontend.say("abc", eos=False)
    body = {"prompt": ["a", "b", "c"], "max_tokens": 200}
    assert frontend.http.post(COMPLETIONS, json=body).status_code == 500
    ended = {frontend.scheduler.expect(Abort).request for _ in range(2)}
    assert len(ended) == 2
    wait_until(lambda: frontend.scheduler.num_open == 0, within=5, what="nothing runs")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("when", ["queued", "running"])
@pytest.mark.parametrize(("path", "body"), BODIES, ids=KINDS)
def test_o37_a_client_that_goes_ends_its_request(
    frontend: HttpFrontend, path: str, body: dict[str, Any], when: str, stream: bool
) -> None:
    frontend.scheduler.step_seconds = 0.01
    frontend.say("abc", eos=False)
    if when == "queued":
        frontend.scheduler.accept.clear()
    connection = connect(frontend, path, {**body, "stream": stream, "max_tokens": 200})
    request = frontend.scheduler.expect(Submit).request
    if when == "running":
        wait_until(lambda: frontend.scheduler.num_open == 1, within=5, what="it runs")
    began = time.monotonic()
    connection.close()
    assert frontend.scheduler.expect(Abort).request == request
    assert time.monotonic() - began < 2


def test_a_client_that_does_not_read_slows_nobody(frontend: HttpFrontend) -> None:
    frontend.say("the cat sat on the mat " * 20, eos=False)
    lazy = connect(frontend, COMPLETIONS, {"prompt": "x", "stream": True, "max_tokens": 250, "n": 100})
    wait_until(lambda: frontend.scheduler.num_open > 0, within=5, what="the lazy one runs")
    for _ in range(5):
        assert frontend.http.post(COMPLETIONS, json={"prompt": "x"}, timeout=5).status_code == 200
    lazy.close()
    wait_until(lambda: frontend.scheduler.num_open == 0, within=5, what="nothing runs")


def test_o45_two_requests_of_one_name_get_their_own_answers(frontend: HttpFrontend) -> None:
    frontend.scheduler.step_seconds = 0.01
    frontend.scheduler.script = lambda submit, index: frontend.ids(f"say {submit.prompt[0]}")
    answers: dict[int, httpx.Response] = {}

    def ask(token: int) -> None:
        answers[token] = httpx.post(
            f"{frontend.url}{COMPLETIONS}",
            json={"prompt": [token], "max_tokens": 40},
            headers={"X-Request-Id": "same"},
        )

    threads = [threading.Thread(target=ask, args=(token,)) for token in (50, 60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for token, answer in answers.items():
        assert answer.headers["x-request-id"] == "same"
        assert answer.json()["id"] == "cmpl-same"
        assert answer.json()["choices"][0]["text"] == f"say {token}"


@pytest.mark.parametrize("name", ["ünïcode", "a b", "x" * 300, ""])
def test_a_name_that_cannot_be_one_is_replaced(frontend: HttpFrontend, name: str) -> None:
    headers = {"X-Request-Id": name.encode("utf-8")}
    answer = frontend.http.post(COMPLETIONS, json={"prompt": "x"}, headers=headers)  # type: ignore[arg-type]
    assert answer.status_code == 200
    assert answer.headers["x-request-id"].startswith("req-")


def test_the_name_may_stand_in_the_body(frontend: HttpFrontend) -> None:
    answer = frontend.http.post(COMPLETIONS, json={"prompt": "x", "request_id": "mine"})
    assert answer.headers["x-request-id"] == "mine"
    assert frontend.scheduler.expect(Submit).name == "mine"


def test_the_story_of_a_request_is_told(frontend: HttpFrontend) -> None:
    for name in ("known-1", "chatcmpl-known-1", "cmpl-known-1"):
        answer = frontend.http.get(f"/debug/requests/{name}")
        assert "queued" in answer.text
        assert "2 ahead" in answer.text
    assert frontend.http.get("/debug/requests/other").status_code == 404
