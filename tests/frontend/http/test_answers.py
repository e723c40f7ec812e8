"""Whole answers and streams of the endpoints for text."""

from typing import Any

import pytest

from octavo.protocol.columns import unpack_i32
from octavo.protocol.requests import Finish, Submit
from octavo.tests.support.events import parse_events, post_stream
from octavo.tests.support.http_frontend import MAX_MODEL_LEN, HttpFrontend

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
BODIES = [(COMPLETIONS, {"prompt": "x"}), (CHAT, {"messages": HI})]
KINDS = ["completions", "chat"]


def post(frontend: HttpFrontend, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = frontend.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    whole: dict[str, Any] = answer.json()
    return whole


def test_a_completion(frontend: HttpFrontend) -> None:
    answer = post(frontend, COMPLETIONS, {"prompt": "x"})
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert answer["choices"] == [
        {"index": 0, "text": "hello", "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    ]
    tokens = len(frontend.ids("hello"))
    assert answer["usage"] == {
        "prompt_tokens": 1,
        "completion_tokens": tokens,
        "total_tokens": tokens + 1,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_a_chat(frontend: HttpFrontend) -> None:
    answer = post(frontend, CHAT, {"messages": HI})
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    message = {"role": "assistant", "content": "hello", "refusal": None}
    assert answer["choices"] == [
        {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    ]
    prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    sent = unpack_i32(frontend.scheduler.expect(Submit).prompt).tolist()
    assert sent == frontend.tokenizer.encode(prompt, add_special_tokens=False)


def test_a_streamed_chat_begins_with_the_role_and_ends_with_the_reason(frontend: HttpFrontend) -> None:
    events = post_stream(frontend.http, CHAT, {"messages": HI})
    first, *middle, last = [chunk["choices"][0] for chunk in events.chunks]
    assert first["delta"] == {"role": "assistant", "content": ""}
    assert all(set(choice["delta"]) == {"content"} for choice in middle)
    assert (last["delta"], last["finish_reason"]) == ({}, "stop")
    assert {chunk["object"] for chunk in events.chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in events.chunks}) == 1
    assert events.texts == {0: "hello"}
    assert events.done


def test_one_event_for_each_token(frontend: HttpFrontend) -> None:
    frontend.scheduler.step_seconds = 0.02
    events = post_stream(frontend.http, COMPLETIONS, {"prompt": "x"})
    assert len(events.chunks) == len(frontend.ids("hello"))


@pytest.mark.parametrize(("path", "body"), BODIES, ids=KINDS)
def test_o01_o02_stop_strings_are_held_back_and_released(
    frontend: HttpFrontend, path: str, body: dict[str, Any]
) -> None:
    frontend.say("abcDEFGz")
    events = post_stream(frontend.http, path, {**body, "stop": ["DEFG"]})
    assert events.texts == {0: "abc"}
    assert events.finish == {0: ["stop"]}
    assert events.chunks[-1]["choices"][0]["stop_reason"] == "DEFG"
    assert frontend.scheduler.expect(Finish).num_output == 7
    frontend.say("abcDEFz")
    assert post_stream(frontend.http, path, {**body, "stop": ["DEFG"]}).texts == {0: "abcDEFz"}
    events = post_stream(frontend.http, path, {**body, "stop": ["DEFG"], "max_tokens": 5})
    assert (events.texts, events.finish) == ({0: "abcDE"}, {0: ["length"]})


def test_o03_min_tokens_holds_against_stop_strings(frontend: HttpFrontend) -> None:
    frontend.say("abc", eos=False)
    answer = post(frontend, COMPLETIONS, {"prompt": "x", "stop": ["b"], "min_tokens": 6, "max_tokens": 20})
    assert answer["choices"][0]["text"] == "abcabca"
    assert answer["usage"]["completion_tokens"] == 8


@pytest.mark.parametrize(("path", "body"), BODIES, ids=KINDS)
def test_o06_no_character_is_cut_apart(frontend: HttpFrontend, path: str, body: dict[str, Any]) -> None:
    frontend.scheduler.step_seconds = 0.005
    frontend.say("Q😀語z.\u2028\u0085é")
    events = post_stream(frontend.http, path, {**body, "max_tokens": 40})
    assert events.texts == {0: "Q😀語z.\u2028\u0085é"}
    for chunk in events.chunks:
        assert "\ufffd" not in str(chunk)


def test_events_hold_no_line_end_that_text_readers_split_at(frontend: HttpFrontend) -> None:
    frontend.say("a\u2028b\u2029c\u0085d\ne\r\x0bf")
    answer = frontend.http.post(COMPLETIONS, json={"prompt": "x", "stream": True, "max_tokens": 40})
    for line in answer.text.splitlines():
        assert line == "" or line.startswith("data: ")
    assert parse_events(answer.content).texts == {0: "a\u2028b\u2029c\u0085d\ne\r\x0bf"}


@pytest.mark.parametrize("fields", [{}, {"max_tokens": None}])
def test_o13_a_chat_without_max_tokens_may_fill_the_context(
    frontend: HttpFrontend, fields: dict[str, None]
) -> None:
    frontend.say("abc", eos=False)
    answer = post(frontend, CHAT, {"messages": HI, **fields})
    assert answer["usage"]["total_tokens"] == MAX_MODEL_LEN
    assert answer["choices"][0]["finish_reason"] == "length"


def test_a_completion_without_max_tokens_has_sixteen(frontend: HttpFrontend) -> None:
    frontend.say("abc", eos=False)
    assert post(frontend, COMPLETIONS, {"prompt": "x"})["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize("tokens", [False, True], ids=["text", "ids"])
def test_o15_echo_puts_the_prompt_in_front_once(frontend: HttpFrontend, tokens: bool) -> None:
    prompt = frontend.ids("the cat é", eos=False) if tokens else "the cat é"
    body = {"prompt": prompt, "echo": True, "max_tokens": 3}
    answer = post(frontend, COMPLETIONS, body)
    assert answer["choices"][0]["text"] == "the cat éhello"
    assert answer["usage"]["completion_tokens"] == 3
    assert post_stream(frontend.http, COMPLETIONS, body).texts == {0: "the cat éhello"}


@pytest.mark.parametrize(("path", "body"), BODIES, ids=KINDS)
def test_o31_usage_comes_once_and_last_for_those_who_ask(
    frontend: HttpFrontend, path: str, body: dict[str, Any]
) -> None:
    body = {**body, "n": 2, "max_tokens": 3}
    whole = post(frontend, path, body)["usage"]
    assert whole["completion_tokens"] == 6
    events = post_stream(frontend.http, path, {**body, "stream_options": {"include_usage": True}})
    *others, last = events.chunks
    assert last["choices"] == []
    assert last["usage"] == whole
    assert [chunk["usage"] for chunk in others] == [None] * len(others)
    assert events.done
    for chunk in post_stream(frontend.http, path, body).chunks:
        assert "usage" not in chunk
        assert chunk["choices"]
    answer = frontend.http.post(path, json={**body, "stream_options": {"include_usage": True}})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "stream_options"


def test_counts_in_every_chunk_for_those_who_ask(frontend: HttpFrontend) -> None:
    frontend.scheduler.step_seconds = 0.02
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = post_stream(frontend.http, COMPLETIONS, {"prompt": "x", "stream_options": options})
    counts = [chunk["usage"]["completion_tokens"] for chunk in events.chunks]
    total = len(frontend.ids("hello"))
    assert counts == [*range(1, total + 1), total]


@pytest.mark.parametrize(("path", "body"), BODIES, ids=KINDS)
@pytest.mark.parametrize(("fields", "reason"), [({}, "stop"), ({"max_tokens": 2}, "length")])
def test_o32_every_choice_ends_with_one_reason(
    frontend: HttpFrontend, path: str, body: dict[str, Any], fields: dict[str, int], reason: str
) -> None:
    events = post_stream(frontend.http, path, {**body, **fields})
    assert events.finish == {0: [reason]}
    assert events.chunks[-1]["choices"][0]["finish_reason"] == reason
    assert events.done


@pytest.mark.parametrize(("path", "body"), BODIES, ids=KINDS)
def test_o33_choices_end_each_for_itself(frontend: HttpFrontend, path: str, body: dict[str, Any]) -> None:
    texts = ["a", "the cat sat on", "", "dog ran"]
    frontend.say(*texts)
    events = post_stream(frontend.http, path, {**body, "n": 4, "max_tokens": 40})
    assert {index: events.texts.get(index, "") for index in range(4)} == dict(enumerate(texts))
    assert events.finish == {index: ["stop"] for index in range(4)}
    whole = post(frontend, path, {**body, "n": 4, "max_tokens": 40})["choices"]
    assert [choice["index"] for choice in whole] == [0, 1, 2, 3]


@pytest.mark.parametrize("tokens", [False, True], ids=["texts", "ids"])
def test_o36_choices_of_several_prompts_are_numbered_through(frontend: HttpFrontend, tokens: bool) -> None:
    def script(submit: Submit, index: int) -> list[int]:
        first = unpack_i32(submit.prompt)[0]
        return [first, frontend.ids("pq")[index]]

    frontend.scheduler.script = script
    prompts = [frontend.ids("a", eos=False), frontend.ids("bc", eos=False)] if tokens else ["a", "bc"]
    body = {"prompt": prompts, "n": 2, "max_tokens": 2}
    answer = post(frontend, COMPLETIONS, body)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in answer["choices"]] == ["ap", "aq", "bp", "bq"]
    assert answer["usage"]["prompt_tokens"] == 3
    events = post_stream(frontend.http, COMPLETIONS, {**body, "stream_options": {"include_usage": True}})
    assert events.texts == {0: "ap", 1: "aq", 2: "bp", 3: "bq"}
    assert events.finish == {index: ["length"] for index in range(4)}
    assert events.chunks[-1]["usage"] == answer["usage"]


def test_generate_answers_with_texts_or_with_the_text(frontend: HttpFrontend) -> None:
    frontend.say("hello wörld")
    assert post(frontend, "/generate", {"prompt": "x"}) == {"text": ["hello wörld"]}
    ids = frontend.ids("x", eos=False)
    assert post(frontend, "/generate", {"prompt_token_ids": ids, "n": 2}) == {"text": ["hello wörld"] * 2}
    answer = frontend.http.post("/generate", json={"prompt": "x", "stream": True})
    assert answer.text == "hello wörld"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


def test_sampling_fields_reach_the_scheduler(frontend: HttpFrontend) -> None:
    fields = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "seed": 3,
        "min_tokens": 1,
        "stop_token_ids": [41],
        "ignore_eos": True,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "repetition_penalty": 1.1,
        "logit_bias": {"50": 1.5},
        "allowed_token_ids": [50, 51],
        "bad_words": ["dog"],
        "skip_special_tokens": False,
        "timeout": 5,
        "n": 2,
    }
    post(frontend, COMPLETIONS, {"prompt": "x", **fields, "priority": 3, "user": "u", "cache_salt": "s"})
    submit = frontend.scheduler.expect(Submit)
    for name, value in fields.items():
        expected = {50: 1.5} if name == "logit_bias" else value
        assert getattr(submit.params, name) == expected, name
    assert (submit.priority, submit.user, submit.cache_salt, submit.seed) == (3, "u", "s", 3)


def test_prompts_are_cut_from_the_left_when_asked(frontend: HttpFrontend) -> None:
    post(frontend, COMPLETIONS, {"prompt": [50, 51, 52], "truncate_prompt_tokens": 2})
    assert unpack_i32(frontend.scheduler.expect(Submit).prompt).tolist() == [51, 52]
    post(frontend, COMPLETIONS, {"prompt": [50] * 999, "truncate_prompt_tokens": -1, "max_tokens": 6})
    assert len(frontend.scheduler.expect(Submit).prompt) == 4 * (MAX_MODEL_LEN - 6)
