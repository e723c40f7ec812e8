"""API keys and origins."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.protocol.requests import Submit
from octavo.tests.support.http_frontend import HttpFrontend, http_frontend

KEY, OTHER = "k\u00e9y", "second"


@pytest.fixture(scope="module")
def guarded(folder: Path) -> Iterator[HttpFrontend]:
    with http_frontend(folder, api_keys=(KEY, OTHER), allowed_origins=("http://page.example",)) as frontend:
        yield frontend


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"Bearer wrong",
        b"Bearer k\xe9y",
        b"Bearer \xe2\x80\x9ckey\xe2\x80\x9d",
        b"Bearer",
        b"basic x",
        b"",
    ],
    ids=str,
)
def test_o49_without_the_key_there_is_no_answer(guarded: HttpFrontend, header: bytes | None) -> None:
    headers = {} if header is None else {b"authorization": header}
    for path in ("/v1/models", "/status", "/nothing", "/version"):
        answer = guarded.http.get(path, headers=headers)  # type: ignore[arg-type]
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.headers["x-request-id"]


@pytest.mark.parametrize("key", [KEY, OTHER])
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_o49_each_key_opens(guarded: HttpFrontend, key: str, scheme: str) -> None:
    headers = {b"authorization": f"{scheme} {key}".encode()}
    assert guarded.http.get("/v1/models", headers=headers).status_code == 200  # type: ignore[arg-type]


def test_o49_health_needs_no_key_and_metrics_by_choice(guarded: HttpFrontend, folder: Path) -> None:
    for path in ("/health", "/health/live", "/metrics"):
        assert guarded.http.get(path).status_code == 200
    with http_frontend(folder, api_keys=(KEY,), protect_metrics=True) as strict:
        assert strict.http.get("/health").status_code == 200
        assert strict.http.get("/metrics").status_code == 401


def test_pages_of_allowed_origins_may_ask(guarded: HttpFrontend) -> None:
    asks = {"origin": "http://page.example", "access-control-request-method": "POST"}
    answer = guarded.http.options("/v1/models", headers=asks)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "http://page.example"
    answer = guarded.http.options("/v1/models", headers={**asks, "origin": "http://evil.example"})
    assert "access-control-allow-origin" not in answer.headers


def test_no_origin_is_allowed_by_default(frontend: HttpFrontend) -> None:
    answer = frontend.http.get("/v1/models", headers={"origin": "http://page.example"})
    assert "access-control-allow-origin" not in answer.headers


def test_with_several_keys_shares_are_counted_by_key(guarded: HttpFrontend, frontend: HttpFrontend) -> None:
    for server, key, user in ((guarded, OTHER, "key-2"), (guarded, KEY, "key-1"), (frontend, "any", "alice")):
        headers = {b"authorization": f"Bearer {key}".encode()}
        body = {"prompt": "a", "user": "alice"}
        assert server.http.post("/v1/completions", json=body, headers=headers).status_code == 200  # type: ignore[arg-type]
        assert server.scheduler.expect(Submit).user == user
