"""A stream is the whole answer in pieces, whatever was asked for."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.tests.support.events import Events, post_stream
from octavo.tests.support.http_frontend import HttpFrontend

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
TEXTS = st.lists(
    st.sampled_from(["the cat", " sat", "dog", "é", "語", "😀", "\n", "stop", " ", "ab", "<|im_start|>"]),
    max_size=8,
).map("".join)

FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(1, 3),
        "max_tokens": st.integers(1, 30),
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
            whole = choices.setdefault(index, {"index": index, "text": "", "logprobs": None})
            whole["text"] += choice["text"] if path == COMPLETIONS else choice["delta"].get("content", "")
            if choice["logprobs"] is not None:
                joined = whole["logprobs"] or {}
                lists = {name: values for name, values in choice["logprobs"].items() if values is not None}
                whole["logprobs"] = {name: joined.get(name, []) + values for name, values in lists.items()}
            if choice["finish_reason"] is not None:
                assert "finish_reason" not in whole
                whole |= {name: choice[name] for name in ("finish_reason", "stop_reason")}
    return [choices[index] for index in sorted(choices)]


def plain(choice: dict[str, Any], path: str) -> dict[str, Any]:
    """A choice of a whole answer, the text under one name."""
    text = choice["text"] if path == COMPLETIONS else choice["message"]["content"]
    logprobs = choice["logprobs"]
    if path == CHAT and logprobs is not None:
        logprobs = {"content": logprobs["content"]}
    return {**{k: v for k, v in choice.items() if k != "message"}, "text": text, "logprobs": logprobs}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from([COMPLETIONS, CHAT]),
    texts=st.lists(TEXTS, min_size=3, max_size=3),
    fields=FIELDS,
    logprobs=st.sampled_from([None, 0, 2]),
    echo=st.booleans(),
)
def test_a_stream_is_the_whole_answer_in_pieces(
    frontend: HttpFrontend,
    path: str,
    texts: list[str],
    fields: dict[str, Any],
    logprobs: int | None,
    echo: bool,
) -> None:
    frontend.say(*texts)
    body: dict[str, Any] = {"max_tokens": 20, **fields}
    if path == COMPLETIONS:
        body |= {"prompt": ["the cat", "x"], "logprobs": logprobs, "echo": echo and logprobs is None}
    else:
        body |= {"messages": [{"role": "user", "content": "hi"}], "logprobs": logprobs is not None}
        body |= {} if logprobs is None else {"top_logprobs": logprobs}
    whole = frontend.http.post(path, json=body)
    assert whole.status_code == 200, whole.text
    events = post_stream(frontend.http, path, {**body, "stream_options": {"include_usage": True}})
    assert folded(events, path) == [plain(choice, path) for choice in whole.json()["choices"]]
    assert events.chunks[-1]["usage"] == whole.json()["usage"]
