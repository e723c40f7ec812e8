"""What a client may get wrong: a status, an error object, and the name of the field at fault."""

import json
import socket
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from octavo.protocol.requests import Submit
from octavo.tests.support.http_frontend import MAX_MODEL_LEN, HttpFrontend

COMPLETIONS, CHAT, GENERATE = "/v1/completions", "/v1/chat/completions", "/generate"
HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


def refused(answer: httpx.Response, status: int = 400) -> dict[str, Any]:
    """The error of an answer, which is OpenAI's in form."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


def alive(frontend: HttpFrontend) -> bool:
    healthy = frontend.http.get("/health").status_code == 200
    answer = frontend.http.post(COMPLETIONS, json={"prompt": "x", "max_tokens": 1})
    return healthy and answer.status_code == 200


FIELDS = [
    (COMPLETIONS, {"max_tokens": "many"}, "max_tokens"),
    (COMPLETIONS, {"max_tokens": -1}, "max_tokens"),
    (COMPLETIONS, {"max_tokens": -1}, "max_tokens"),
    (COMPLETIONS, {"temperature": "hot"}, "temperature"),
    (COMPLETIONS, {"temperature": -1}, "temperature"),
    (COMPLETIONS, {"top_p": 1.1}, "top_p"),
    (COMPLETIONS, {"min_p": -0.1}, "min_p"),
    (COMPLETIONS, {"min_p": 1.5}, "min_p"),
    (COMPLETIONS, {"top_k": -2}, "top_k"),
    (COMPLETIONS, {"n": 0}, "n"),
    (COMPLETIONS, {"n": -1}, "n"),
    (COMPLETIONS, {"n": "2"}, "n"),
    (COMPLETIONS, {"n": 1000}, "n"),
    (COMPLETIONS, {"seed": 1.5}, "seed"),
    (COMPLETIONS, {"stop": [1]}, "stop[0]"),
    (COMPLETIONS, {"logit_bias": {"999999": 5}}, "logit_bias"),
    (COMPLETIONS, {"logit_bias": {"-1": 5}}, "logit_bias"),
    (COMPLETIONS, {"logit_bias": {"abc": 5}}, "logit_bias"),
    (COMPLETIONS, {"logit_bias": {"5": "x"}}, "logit_bias[...]"),
    (COMPLETIONS, {"stop_token_ids": [99999], "min_tokens": 1}, "stop_token_ids"),
    (COMPLETIONS, {"stop_token_ids": [-1]}, "stop_token_ids"),
    (COMPLETIONS, {"allowed_token_ids": []}, "allowed_token_ids"),
    (COMPLETIONS, {"min_tokens": 9, "max_tokens": 3}, "min_tokens"),
    (COMPLETIONS, {"logprobs": 99}, "logprobs"),
    (COMPLETIONS, {"timeout": 0}, "timeout"),
    (COMPLETIONS, {"stream": "yes"}, "stream"),
    (COMPLETIONS, {"stream_options": {"include_usage": True}}, "stream_options"),
    (COMPLETIONS, {"stream": True, "stream_options": {"colour": 1}}, "stream_options.colour"),
    (COMPLETIONS, {"prompt": 5}, "prompt"),
    (COMPLETIONS, {"prompt": None}, "prompt"),
    (COMPLETIONS, {"prompt": {"text": "x"}}, "prompt"),
    (COMPLETIONS, {"prompt": ["x", 5]}, "prompt"),
    (COMPLETIONS, {"model": 5}, "model"),
    (CHAT, {"messages": "hi"}, "messages"),
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {"messages": [{"content": "x"}]}, "messages[0].role"),
    (CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    (CHAT, {"messages": [{"role": "user", "content": "x", "colour": 1}]}, "messages[0].colour"),
    (CHAT, {"max_completion_tokens": 0}, "max_completion_tokens"),
    (CHAT, {"logprobs": True, "top_logprobs": 99}, "top_logprobs"),
    (CHAT, {"chat_template": "{{ 1 }}"}, "chat_template"),
    (CHAT, {"chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs"),
    (CHAT, {"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
    (GENERATE, {"prompt_token_ids": [1]}, "prompt"),
    (GENERATE, {"stream": True, "n": 2}, "stream"),
]


@pytest.mark.parametrize(("path", "fields", "param"), FIELDS, ids=str)
def test_a_wrong_field_is_named(
    frontend: HttpFrontend, path: str, fields: dict[str, Any], param: str
) -> None:
    start = {"messages": HI} if path == CHAT else {"prompt": "x"}
    error = refused(frontend.http.post(path, json={**start, **fields}))
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, GENERATE, "/tokenize", "/detokenize"])
def test_an_unknown_field_is_refused_by_name(frontend: HttpFrontend, path: str) -> None:
    error = refused(frontend.http.post(path, json={"tempratur": 1}))
    assert error["param"] == "tempratur"
    assert "tempratur" in error["message"]


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, "/detokenize"])
def test_a_missing_field_is_named(frontend: HttpFrontend, path: str) -> None:
    names = {COMPLETIONS: "prompt", CHAT: "messages", "/detokenize": "tokens"}
    assert refused(frontend.http.post(path, json={}))["param"] == names[path]


FEATURES = [
    (COMPLETIONS, {"suffix": "end"}),
    (COMPLETIONS, {"best_of": 3}),
    (COMPLETIONS, {"use_beam_search": True}),
    (CHAT, {"tools": [{"type": "function", "function": {"name": "f"}}]}),
    (CHAT, {"functions": [{"name": "f"}]}),
    (CHAT, {"audio": {"voice": "x", "format": "wav"}}),
    (CHAT, {"modalities": ["text", "audio"]}),
    (CHAT, {"reasoning_effort": "high"}),
    (CHAT, {"guided_json": {"type": "object"}}),
]


@pytest.mark.parametrize(("path", "fields"), FEATURES, ids=str)
def test_a_missing_feature_is_refused_by_name(
    frontend: HttpFrontend, path: str, fields: dict[str, Any]
) -> None:
    start = {"messages": HI} if path == CHAT else {"prompt": "x"}
    error = refused(frontend.http.post(path, json={**start, **fields}))
    assert error["param"] == next(iter(fields))
    assert error["code"] == "unsupported"


HARMLESS: list[tuple[str, dict[str, Any]]] = [
    (
        COMPLETIONS,
        {
            "user": "u",
            "metadata": {"a": "b"},
            "store": False,
            "service_tier": "auto",
            "prompt_cache_key": "k",
            "safety_identifier": "s",
            "suffix": None,
            "best_of": 1,
            "n": None,
            "max_tokens": None,
            "response_format": {"type": "text"},
            "logit_bias": {},
            "stream_options": None,
        },
    ),
    (
        CHAT,
        {
            "user": "u",
            "metadata": None,
            "parallel_tool_calls": True,
            "tools": [],
            "tool_choice": "none",
            "response_format": {"type": "text"},
            "modalities": ["text"],
            "audio": None,
            "max_completion_tokens": None,
            "stop": None,
        },
    ),
]


@pytest.mark.parametrize(("path", "fields"), HARMLESS, ids=["completions", "chat"])
def test_fields_that_cannot_change_the_text_are_accepted(
    frontend: HttpFrontend, path: str, fields: dict[str, Any]
) -> None:
    start = {"messages": HI} if path == CHAT else {"prompt": "x"}
    answer = frontend.http.post(path, json={**start, **fields})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("stop", ["", [""], ["", "z"]])
def test_o05_an_empty_stop_string_is_refused(frontend: HttpFrontend, stop: object) -> None:
    assert refused(frontend.http.post(COMPLETIONS, json={"prompt": "x", "stop": stop}))["param"] == "stop"


@pytest.mark.parametrize("stop", [[], None])
def test_o05_no_stop_string_is_no_stop_string(frontend: HttpFrontend, stop: object) -> None:
    answer = frontend.http.post(COMPLETIONS, json={"prompt": "x", "stop": stop})
    assert answer.json()["choices"][0]["text"] == "hello"


def test_o09_no_tokens_at_all_are_an_empty_text_or_refused(frontend: HttpFrontend) -> None:
    for body in ({"prompt": "the cat"}, {"prompt": [70, 71], "n": 2}):
        answer = frontend.http.post(COMPLETIONS, json={**body, "max_tokens": 0}).json()
        assert {choice["text"] for choice in answer["choices"]} == {""}
        assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}
        assert answer["usage"]["completion_tokens"] == 0
    refused(frontend.http.post(CHAT, json={"messages": HI, "max_tokens": 0}))
    refused(frontend.http.post(COMPLETIONS, json={"prompt": "x", "max_tokens": -1}))
    refused(frontend.http.post(COMPLETIONS, json={"prompt": "x", "max_tokens": 0, "min_tokens": 2}))
    assert alive(frontend)


def test_o10_a_prompt_as_long_as_the_context_is_refused_with_the_numbers(frontend: HttpFrontend) -> None:
    def post(length: int) -> httpx.Response:
        return frontend.http.post(COMPLETIONS, json={"prompt": [50] * length, "max_tokens": 1})

    answer = post(MAX_MODEL_LEN - 1)
    assert answer.json()["choices"][0]["finish_reason"] == "length"
    for length in (MAX_MODEL_LEN, MAX_MODEL_LEN + 1):
        error = refused(post(length))
        assert str(MAX_MODEL_LEN) in error["message"]
        assert str(length) in error["message"]
        assert error["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {"prompt": [50] * (MAX_MODEL_LEN + 50)}),
        (CHAT, {"messages": [{"role": "user", "content": "x" * (MAX_MODEL_LEN + 50)}]}),
    ],
    ids=["completions", "chat"],
)
def test_o11_a_too_long_prompt_is_a_plain_error_also_in_a_stream(
    frontend: HttpFrontend, path: str, body: dict[str, Any]
) -> None:
    refused(frontend.http.post(path, json={**body, "stream": True}))
    assert alive(frontend)


def test_o12_max_tokens_beyond_the_room_is_refused_with_the_numbers(frontend: HttpFrontend) -> None:
    body = {"prompt": [50] * (MAX_MODEL_LEN - 10)}
    error = refused(frontend.http.post(COMPLETIONS, json={**body, "max_tokens": 11}))
    assert str(MAX_MODEL_LEN) in error["message"]
    assert str(MAX_MODEL_LEN - 10) in error["message"]
    assert frontend.http.post(COMPLETIONS, json={**body, "max_tokens": 10}).status_code == 200


@pytest.mark.parametrize("prompt", ["", [""], [], [[]], ["x", ""]])
def test_o14_an_empty_prompt_is_refused(frontend: HttpFrontend, prompt: object) -> None:
    assert refused(frontend.http.post(COMPLETIONS, json={"prompt": prompt}))["param"] == "prompt"
    assert alive(frontend)


@pytest.mark.parametrize(
    "prompt", [[5, -1], [5, 100_000], [5, 2**63], [5, 1.5], [[5], [100_000]], [5, 10**400]]
)
@pytest.mark.parametrize("echo", [False, True])
def test_o17_token_ids_the_model_does_not_have_are_refused(
    frontend: HttpFrontend, prompt: object, echo: bool
) -> None:
    answer = frontend.http.post(COMPLETIONS, json={"prompt": prompt, "echo": echo})
    assert refused(answer)["param"] == "prompt"
    assert refused(frontend.http.post("/detokenize", json={"tokens": prompt}))
    assert alive(frontend)


@pytest.mark.parametrize("n", [0, -1, "2"])
def test_o34_a_bad_value_in_a_stream_ends_the_answer_at_once(frontend: HttpFrontend, n: object) -> None:
    refused(frontend.http.post(COMPLETIONS, json={"prompt": "x", "stream": True, "n": n}, timeout=2))


BROKEN = {
    "cut off": b'{"a":',
    "no name": b"{x}",
    "empty": b"",
    "invalid UTF-8": b'{"prompt":"\xff\xfe"}',
    "half a surrogate": b'{"prompt":"\\ud800"}',
    "no object": b"[]",
    "text": b'"prompt"',
    "not a number": b'{"prompt":"x","temperature":NaN}',
    "deep lists": b'{"prompt":' + b"[" * 200_000,
    "deep unknown": b'{"metadata":' + b'{"a":' * 200_000,
    "deep message": b'{"messages":[{"role":"user","content":' + b"[" * 100_000,
    "more behind": b'{"prompt":"x"} {}',
    "words for numbers": b'{"prompt":"x","messages":[],"max_tokens":"many"}',
    "hot": b'{"prompt":"x","messages":[],"temperature":"hot"}',
    "messages are text": b'{"messages":"hi"}',
    "no messages": b'{"messages":[]}',
}


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_o47_a_broken_body_is_a_bad_request(frontend: HttpFrontend, path: str, body: bytes) -> None:
    refused(frontend.http.post(path, content=body, headers={"content-type": "application/json"}))
    assert alive(frontend)


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
def test_o47_a_huge_body_is_refused(frontend: HttpFrontend, declared: bool) -> None:
    part = b"x" * (1 << 20)

    def parts() -> Any:
        yield b'{"prompt":"'
        for _ in range(50):
            yield part

    content = b"".join(parts()) if declared else parts()
    answer = frontend.http.post(COMPLETIONS, content=content, headers={"content-type": "application/json"})
    refused(answer, 413)
    assert alive(frontend)


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        (None, 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("application/vnd.api+json", 200),
    ],
)
def test_o48_only_a_body_declared_as_json_is_read(
    frontend: HttpFrontend, content_type: str | None, status: int
) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    answer = frontend.http.post(COMPLETIONS, content=b'{"prompt":"x"}', headers=headers)
    assert answer.status_code == status
    if status != 200:
        refused(answer, status)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [(COMPLETIONS, {"prompt": "x"}), (CHAT, {"messages": HI}), ("/tokenize", {"prompt": "x"})],
)
def test_o53_an_unknown_model_is_not_found(
    frontend: HttpFrontend, path: str, body: dict[str, Any], stream: bool
) -> None:
    fields = {} if path == "/tokenize" else {"stream": stream}
    error = refused(frontend.http.post(path, json={**body, **fields, "model": "nope"}), 404)
    assert error["code"] == "model_not_found"
    assert "nope" in error["message"]


def test_o53_every_listed_model_works_and_is_named_in_the_answer(frontend: HttpFrontend) -> None:
    names = [model["id"] for model in frontend.http.get("/v1/models").json()["data"]]
    assert names == ["test-model", "alias"]
    for name in names:
        assert frontend.http.get(f"/v1/models/{name}").json()["id"] == name
        answer = frontend.http.post(COMPLETIONS, json={"prompt": "x", "model": name})
        assert answer.json()["model"] == name
    assert refused(frontend.http.get("/v1/models/nope"), 404)["code"] == "model_not_found"
    assert frontend.http.post(COMPLETIONS, json={"prompt": "x"}).json()["model"] == names[0]


def test_no_such_path_and_no_such_method_have_the_same_form(frontend: HttpFrontend) -> None:
    assert "/v1/nothing" in refused(frontend.http.get("/v1/nothing"), 404)["message"]
    answer = frontend.http.get(COMPLETIONS)
    assert "GET" in refused(answer, 405)["message"]
    assert answer.headers["allow"] == "POST"


def test_a_refused_request_never_reaches_the_scheduler(frontend: HttpFrontend) -> None:
    refused(frontend.http.post(COMPLETIONS, json={"prompt": "x", "n": 0}))
    frontend.http.post(COMPLETIONS, json={"prompt": "x", "n": 2})
    assert frontend.scheduler.expect(Submit).params.n == 2


@pytest.mark.parametrize(
    "sent", [b"hello\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"POST / HTTP/9\r\n\r\n"]
)
def test_what_is_no_http_is_refused_in_the_same_form(frontend: HttpFrontend, sent: bytes) -> None:
    url = urlsplit(frontend.url)
    with socket.create_connection((url.hostname, url.port), timeout=10) as connection:
        connection.sendall(sent)
        with connection.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    assert alive(frontend)
