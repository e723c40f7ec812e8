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


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize("path", START)
@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, StructuredOutputsParams(json_object=True)),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}},
            StructuredOutputsParams(json=SCHEMA),  # type: ignore[arg-type]
        ),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, StructuredOutputsParams(json_object=True)),
    ],
)
def test_openai_asks_by_response_format(
    frontend: HttpFrontend, path: str, form: dict[str, Any], wanted: StructuredOutputsParams | None
) -> None:
    answer = frontend.http.post(path, json={**START[path], "response_format": form})
    assert answer.status_code == 200, answer.text
    assert frontend.scheduler.expect(Submit).params.structured_outputs == wanted


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ({"type": "xml"}, "response_format.type"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {"schema": {"type": "nope"}}}, "response_format"),
        ({"type": "json_schema", "json_schema": {"schema": {"$ref": "#/nowhere"}}}, "response_format"),
        ({"type": "json_object", "more": 1}, "response_format.more"),
    ],
)
def test_o56_a_bad_response_format_is_refused_by_its_name(
    frontend: HttpFrontend, form: dict[str, Any], param: str
) -> None:
    answer = frontend.http.post(CHAT, json={**START[CHAT], "response_format": form})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_one_grammar_is_enough(frontend: HttpFrontend) -> None:
    body = {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}
    answer = frontend.http.post(CHAT, json={**START[CHAT], **body})
    assert answer.json()["error"]["param"] == "response_format"
