"""Structured outputs over HTTP: what is asked for reaches the scheduler, and a bad grammar does not."""

import time
from typing import Any

import pytest

from octavo.protocol.requests import Submit
from octavo.protocol.structured import StructuredOutputsParams

from ...support.http_frontend import HttpFrontend

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
START: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"prompt": "x", "max_tokens": 1},
    CHAT: {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1},
}


@pytest.mark.parametrize("path", START)
@pytest.mark.parametrize(
    "wanted",
    [{"json": {"type": "object"}}, {"regex": "a+"}, {"choice": ["a", "b"]}, {"json_object": True}],
    ids=lambda wanted: next(iter(wanted)),
)
def test_what_is_asked_for_reaches_the_scheduler(
    frontend: HttpFrontend, path: str, wanted: dict[str, Any]
) -> None:
    seen: list[Submit] = []

    def script(submit: Submit, index: int) -> tuple[int, ...]:
        seen.append(submit)
        return (5,)

    frontend.scheduler.script = script
    answer = frontend.http.post(path, json={**START[path], "structured_outputs": wanted})
    assert answer.status_code == 200, answer.text
    assert seen[0].params.structured_outputs == StructuredOutputsParams(**wanted)


@pytest.mark.parametrize("path", START)
@pytest.mark.parametrize(
    "wanted",
    [
        {"json": {"type": "objekt"}},
        {"json": "{"},
        {"regex": "("},
        {"grammar": "nothing"},
        {"choice": []},
        {"regex": "a", "choice": ["a"]},
        {"regex": 3},
        {"shape": "round"},
    ],
    ids=str,
)
def test_a_bad_one_is_a_400_that_names_the_field(
    frontend: HttpFrontend, path: str, wanted: dict[str, Any]
) -> None:
    began = time.perf_counter()
    answer = frontend.http.post(path, json={**START[path], "structured_outputs": wanted})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("structured_outputs")
    assert time.perf_counter() - began < 5
