"""Log-probabilities in both forms. The scripted scheduler makes them up: -0.5 for the token, then -1, -2."""

import json
from typing import Any

import pytest

from octavo.tests.support.events import post_stream
from octavo.tests.support.http_frontend import HttpFrontend

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


def choice(frontend: HttpFrontend, path: str, **fields: object) -> dict[str, Any]:
    start: dict[str, Any] = {"messages": HI} if path == CHAT else {"prompt": "x"}
    answer = frontend.http.post(path, json={**start, "max_tokens": 40, **fields})
    assert answer.status_code == 200, answer.text
    first: dict[str, Any] = json.loads(answer.text, parse_constant=_no_constant)["choices"][0]
    return first


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@pytest.mark.parametrize("fields", [{}, {"top_logprobs": 0}])
def test_o27_logprobs_without_alternatives(frontend: HttpFrontend, fields: dict[str, int]) -> None:
    content = choice(frontend, CHAT, logprobs=True, **fields)["logprobs"]["content"]
    assert len(content) == len(frontend.ids("hello"))
    for entry in content:
        assert entry["logprob"] == -0.5
        assert bytes(entry["bytes"]).decode() == entry["token"]
        assert entry["top_logprobs"] == []


def test_o27_alternatives_need_logprobs(frontend: HttpFrontend) -> None:
    answer = frontend.http.post(CHAT, json={"messages": HI, "top_logprobs": 2})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "top_logprobs"


def test_o27_no_logprobs_are_null(frontend: HttpFrontend) -> None:
    assert choice(frontend, CHAT, logprobs=False)["logprobs"] is None
    assert choice(frontend, COMPLETIONS)["logprobs"] is None


def test_o28_the_chosen_token_is_always_there(frontend: HttpFrontend) -> None:
    logprobs = choice(frontend, COMPLETIONS, logprobs=2)["logprobs"]
    for token, top in zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True):
        assert top[token] == -0.5
        assert 1 <= len(top) <= 3
    for entry in choice(frontend, CHAT, logprobs=True, top_logprobs=1)["logprobs"]["content"]:
        assert len(entry["top_logprobs"]) == 1
        assert entry["logprob"] == -0.5


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_o29_minus_infinity_is_a_number_in_json(frontend: HttpFrontend, path: str) -> None:
    fields: dict[str, Any] = {"logprobs": 2} if path == COMPLETIONS else {"logprobs": True, "top_logprobs": 2}
    assert "-9999.0" in json.dumps(choice(frontend, path, **fields))
    start = {"messages": HI} if path == CHAT else {"prompt": "x"}
    events = post_stream(frontend.http, path, {**start, **fields})
    assert "-9999.0" in json.dumps(events.logprobs())


ECHO = "\n1. the cat"


def echoed(frontend: HttpFrontend, **fields: Any) -> dict[str, Any]:
    body = {"prompt": ECHO, "echo": True, "logprobs": 1, **fields}
    answer = frontend.http.post(COMPLETIONS, json=body)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["usage"]["prompt_tokens"] == len(frontend.tokenizer.encode(ECHO))
    return {**body["choices"][0], "completion_tokens": body["usage"]["completion_tokens"]}


def test_o16_echo_with_logprobs_describes_prompt_and_answer(frontend: HttpFrontend) -> None:
    frontend.say(" dog")
    found = echoed(frontend, max_tokens=1)
    logprobs, num_prompt = found["logprobs"], len(frontend.tokenizer.encode(ECHO))
    assert {len(column) for column in logprobs.values()} == {num_prompt + 1}
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["token_logprobs"][1:num_prompt] == [-float(p) for p in range(1, num_prompt)]
    assert all(1 <= len(top) <= 2 for top in logprobs["top_logprobs"][1:])
    assert "".join(logprobs["tokens"]) == found["text"] == ECHO + " dog"
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert found["text"][offset:].startswith(token)


def test_o09_the_prompt_alone_with_its_logprobs(frontend: HttpFrontend) -> None:
    found = echoed(frontend, max_tokens=0)
    assert found["text"] == ECHO == "".join(found["logprobs"]["tokens"])
    assert found["completion_tokens"] == 0
    assert len(found["logprobs"]["token_logprobs"]) == len(frontend.tokenizer.encode(ECHO))
    assert found["finish_reason"] == "length"


def test_echo_with_logprobs_is_the_same_in_a_stream(frontend: HttpFrontend) -> None:
    frontend.say(" dog")
    for max_tokens in (0, 2):
        whole = echoed(frontend, max_tokens=max_tokens, n=2)
        body = {"prompt": ECHO, "echo": True, "logprobs": 1, "max_tokens": max_tokens, "n": 2}
        events = post_stream(frontend.http, COMPLETIONS, body)
        assert events.texts == {0: whole["text"], 1: whole["text"]}
        for index in range(2):
            parts = events.logprobs(index)
            joined = {name: [x for part in parts for x in part[name]] for name in whole["logprobs"]}
            assert joined == whole["logprobs"]


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_prompt_logprobs_have_the_form_of_vllm(frontend: HttpFrontend, path: str) -> None:
    start = {"messages": HI} if path == CHAT else {"prompt": "the cat"}
    answer = frontend.http.post(path, json={**start, "prompt_logprobs": 2, "max_tokens": 1}).json()
    told = (answer if path == CHAT else answer["choices"][0])["prompt_logprobs"]
    assert len(told) == answer["usage"]["prompt_tokens"]
    assert told[0] is None
    for position, entry in enumerate(told[1:], start=1):
        assert 2 <= len(entry) <= 3
        assert {name for one in entry.values() for name in one} == {"logprob", "rank", "decoded_token"}
        assert next(iter(entry.values())) | {"decoded_token": ""} == {
            "logprob": -float(position),
            "rank": 7,
            "decoded_token": "",
        }
    refused = frontend.http.post(path, json={**start, "prompt_logprobs": 2, "stream": True})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "prompt_logprobs"
    without = frontend.http.post(path, json={**start, "max_tokens": 1}).text
    assert "prompt_logprobs" not in without


def test_tokens_and_offsets_describe_the_text(frontend: HttpFrontend) -> None:
    text = "the cat\n sat 语😀 dog"
    frontend.say(text)
    logprobs = choice(frontend, COMPLETIONS, logprobs=0)["logprobs"]
    tokens = len(frontend.ids(text))
    assert {name: len(values) for name, values in logprobs.items()} == dict.fromkeys(logprobs, tokens)
    assert logprobs["text_offset"] == sorted(logprobs["text_offset"])
    pairs = list(zip(logprobs["tokens"], logprobs["text_offset"], strict=True))
    for token, offset in pairs[:-1]:
        assert token.startswith("bytes:") or text[offset:].startswith(token)
    assert sum(token.startswith("bytes:") for token, _ in pairs) == 7
    assert pairs[-1] == ("<|im_end|>", len(text))


def test_a_stream_has_the_same_logprobs_as_a_whole_answer(frontend: HttpFrontend) -> None:
    frontend.scheduler.step_seconds = 0.005
    frontend.say("the é 😀 sat")
    whole = choice(frontend, COMPLETIONS, logprobs=1)["logprobs"]
    parts = post_stream(
        frontend.http, COMPLETIONS, {"prompt": "x", "max_tokens": 40, "logprobs": 1}
    ).logprobs()
    for name, values in whole.items():
        assert [value for part in parts for value in part[name]] == values
    whole = choice(frontend, CHAT, logprobs=True, top_logprobs=1)["logprobs"]["content"]
    body = {"messages": HI, "max_tokens": 40, "logprobs": True, "top_logprobs": 1}
    parts = post_stream(frontend.http, CHAT, body).logprobs()
    assert [entry for part in parts for entry in part["content"]] == whole
