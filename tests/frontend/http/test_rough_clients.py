"""Clients that say nothing, read nothing, or talk nonsense: others do not notice."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from octavo.tests.support.events import post_stream
from octavo.tests.support.http_frontend import HttpFrontend, http_frontend
from octavo.tests.support.waiting import wait_until

PATH = "/v1/completions"


@pytest.fixture(scope="module")
def rough(folder: Path) -> Iterator[HttpFrontend]:
    """A frontend of little patience."""
    with http_frontend(folder, head_timeout=3.0, body_timeout=3.0, max_model_len=1 << 20) as frontend:
        yield frontend


@pytest.fixture
def frontend(rough: HttpFrontend) -> HttpFrontend:
    rough.reset()
    return rough


def connect(frontend: HttpFrontend, *, receive_buffer: int = 0) -> socket.socket:
    """A connection of one's own."""
    parts = urlsplit(frontend.url)
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(10)
    connection.connect((parts.hostname, parts.port))
    return connection


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def test_a_request_that_does_not_arrive_is_given_up(frontend: HttpFrontend) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n"
    parts = (b"", b"POST /v1/completions HT", b"GET /health HTTP/1.1\r\nhost: x\r\n", head + b"{")
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(frontend)) for _ in parts]
        for connection, part in zip(connections, parts, strict=True):
            connection.sendall(part)
        for connection in connections:
            answer = read_all(connection)
            assert answer.startswith(b"HTTP/1.1 408 ")
            error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
            assert error["type"] == "invalid_request_error"
    assert frontend.http.get("/health").status_code == 200


def test_a_head_without_end_is_refused(frontend: HttpFrontend) -> None:
    answer = b""
    with connect(frontend) as connection, suppress(ConnectionError):  # it may close before all is said
        connection.sendall(b"GET /health HTTP/1.1\r\n" + b"x-long: y\r\n" * 10_000)
        answer = read_all(connection)
    assert not answer or answer.startswith(b"HTTP/1.1 431 ")


def test_an_answer_may_take_longer_than_its_request(frontend: HttpFrontend) -> None:
    frontend.scheduler.go.clear()
    threading.Timer(3.5, frontend.scheduler.go.set).start()  # behind both bounds
    assert frontend.http.post(PATH, json={"prompt": "x"}).json()["choices"][0]["text"] == "hello"


def check_rough_clients(frontend: HttpFrontend, *, half_open: int, floods: int) -> list[float]:
    """Seconds that health took to answer beside half-open connections and nonsense."""
    stop = threading.Event()

    def flood() -> None:
        with httpx.Client(base_url=frontend.url, timeout=30) as client:
            while not stop.is_set():
                headers = {"content-type": "application/json"}
                assert client.post(PATH, content=b'{"prompt": [' * 50, headers=headers).status_code == 400

    threads = [threading.Thread(target=flood) for _ in range(floods)]
    waits = []
    with ExitStack() as stack:
        for _ in range(half_open):
            stack.enter_context(connect(frontend)).sendall(b"GET /health HT")
        for thread in threads:
            thread.start()
        try:
            for _ in range(100):
                began = time.monotonic()
                assert frontend.http.get("/health").status_code == 200
                waits.append(time.monotonic() - began)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert post_stream(frontend.http, PATH, {"prompt": "x"}).texts == {0: "hello"}
    return sorted(waits)


def test_health_answers_beside_rough_clients(frontend: HttpFrontend) -> None:
    waits = check_rough_clients(frontend, half_open=150, floods=2)
    assert waits[50] < 1.0


@pytest.mark.full
def test_health_answers_beside_a_thousand_half_open_connections(frontend: HttpFrontend) -> None:
    waits = check_rough_clients(frontend, half_open=1000, floods=2)
    assert waits[98] < 0.1, f"p99 {waits[98]:.3f} s"


def test_a_reader_that_stalls_slows_no_other_and_costs_little(frontend: HttpFrontend) -> None:
    body = {"prompt": "x", "max_tokens": 20_000, "ignore_eos": True, "stream": True}
    content = json.dumps(body).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
    )
    with connect(frontend, receive_buffer=4096) as stalled:
        stalled.sendall(head.encode() + b"\r\nconnection: close\r\n\r\n" + content)
        wait_until(lambda: frontend.scheduler.num_open == 1, within=10, what="it runs")
        # It reads nothing, and the scheduler goes on to its end.
        wait_until(lambda: frontend.scheduler.num_open == 0, within=60, what="it ends")
        assert post_stream(frontend.http, PATH, {"prompt": "x"}).texts == {0: "hello"}
        answer = read_all(stalled)
    events = [json.loads(line[6:]) for line in answer.split(b"\n") if line.startswith(b"data: {")]
    text = "".join(choice["text"] for event in events for choice in event["choices"])
    assert text == ("hello" * 20_000)[: len(text)]
    assert answer.rstrip().endswith(b"0")  # the last chunk: the answer is whole
    # What could not be written was joined.
    assert len(events) < 20_000
