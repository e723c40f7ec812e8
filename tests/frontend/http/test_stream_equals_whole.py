"""A stream is the whole answer in pieces, whatever was asked for."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.tests.support.events import Events, post_stream
from octavo.tests.support.http_frontend import HttpFrontend, http_frontend
from octavo.tests.support.templates import THINKING
from octavo.tests.support.tokens import make_tok_b

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
TOOLS = [{"type": "function", "function": {"name": "cat"}}]
CALLS = ['<tool_call>{"name": "cat", "arguments": {"sat": [', '"é"', "]}}", "</tool_call>", "</think>", "{"]
TEXTS = st.lists(
    st.sampled_from(
        ["the cat", " sat", "dog", "é", "語", "😀", "\n", "stop", " ", "ab", "<|im_start|>", *CALLS]
    ),
    max_size=8,
).map("".join)

FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(1, 3),
        "max_tokens": st.integers(1, 60),
        "min_tokens": st.just(1),
        "stop": st.lists(st.sampled_from(["stop", "cat", "語", "o", "sat do"]), max_size=3),
        "include_stop_str_in_output": st.booleans(),
        "skip_special_tokens": st.booleans(),
        "ignore_eos": st.booleans(),
    },
)


def folded(events: Events, path: str) -> list[dict[str, Any]]:
    """The choices of a stream, in the form of a whole answer."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in events.chunks:
        for choice in chunk["choices"]:
            index = choice["index"]
            whole = choices.setdefault(
                index, {"index": index, "text": "", "reasoning": "", "calls": [], "logprobs": None}
            )
            delta = choice["delta"] if path == CHAT else {"content": choice["text"]}
            whole["text"] += delta.get("content", "")
            whole["reasoning"] += delta.get("reasoning_content", "")
            for call in delta.get("tool_calls", ()):
                if "id" in call:
                    whole["calls"].append([call["function"]["name"], ""])
                whole["calls"][call["index"]][1] += call["function"]["arguments"]
            if choice["logprobs"] is not None:
                joined = whole["logprobs"] or {}
                lists = {name: values for name, values in choice["logprobs"].items() if values is not None}
                whole["logprobs"] = {name: joined.get(name, []) + values for name, values in lists.items()}
            if choice["finish_reason"] is not None:
                assert "finish_reason" not in whole
                whole |= {name: choice[name] for name in ("finish_reason", "stop_reason")}
    return [choices[index] for index in sorted(choices)]


def plain(choice: dict[str, Any], path: str) -> dict[str, Any]:
    """A choice of a whole answer, its parts under the names of `folded`."""
    message = choice["message"] if path == CHAT else {"content": choice["text"]}
    calls = [call["function"] for call in message.get("tool_calls", ())]
    parts = {
        "text": message["content"] or "",
        "reasoning": message.get("reasoning_content", ""),
        "calls": [[call["name"], call["arguments"]] for call in calls],
    }
    logprobs = choice["logprobs"]
    if path == CHAT and logprobs is not None:
        logprobs = {"content": logprobs["content"]}
    return {**{k: v for k, v in choice.items() if k != "message"}, **parts, "logprobs": logprobs}


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFrontend]:
    """A model that reasons and calls tools."""
    folder = tmp_path_factory.mktemp("thinking")
    make_tok_b(folder, chat_template=THINKING)
    with http_frontend(folder, max_model_len=1024) as frontend:
        yield frontend


def check_one(frontend: HttpFrontend, data: st.DataObject) -> None:
    """A random request, streamed and whole."""
    path = data.draw(st.sampled_from([COMPLETIONS, CHAT]))
    frontend.say(*data.draw(st.lists(TEXTS, min_size=3, max_size=3)))
    logprobs = data.draw(st.sampled_from([None, 0, 2]))
    body: dict[str, Any] = {"max_tokens": 60, **data.draw(FIELDS)}
    if path == COMPLETIONS:
        echo = data.draw(st.booleans()) and logprobs is None
        body |= {"prompt": ["the cat", "x"], "logprobs": logprobs, "echo": echo}
    else:
        body |= {"messages": [{"role": "user", "content": "hi"}], "logprobs": logprobs is not None}
        body |= {} if logprobs is None else {"top_logprobs": logprobs}
        body |= {"tools": TOOLS, "parallel_tool_calls": data.draw(st.booleans())}
        body |= {"chat_template_kwargs": {"enable_thinking": data.draw(st.booleans())}}
    whole = frontend.http.post(path, json=body)
    assert whole.status_code == 200, whole.text
    events = post_stream(frontend.http, path, {**body, "stream_options": {"include_usage": True}})
    assert folded(events, path) == [plain(choice, path) for choice in whole.json()["choices"]]
    assert events.chunks[-1]["usage"] == whole.json()["usage"]


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_a_stream_is_the_whole_answer_in_pieces(thinking: HttpFrontend, data: st.DataObject) -> None:
    check_one(thinking, data)


@pytest.mark.full
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_four_hundred_streams_are_whole_answers_in_pieces(
    thinking: HttpFrontend, data: st.DataObject
) -> None:
    check_one(thinking, data)
