"""Tools and reasoning over HTTP: what the model is shown, and what its text becomes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo.protocol.requests import Submit
from octavo.tests.support.events import Events, post_stream
from octavo.tests.support.http_frontend import HttpFrontend, http_frontend
from octavo.tests.support.templates import HERMES, THINKING
from octavo.tests.support.tokens import make_tok_b

CHAT = "/v1/chat/completions"
ASK = [{"role": "user", "content": "weather?"}]
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": "d", "parameters": {"type": "object", "properties": {}}},
    }
    for name in ("weather", "time")
]
WEATHER = '<tool_call>{"name": "weather", "arguments": {"city": "Zürich"}}</tool_call>'
TIME = '<tool_call>{"name": "time", "arguments": {}}</tool_call>'


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFrontend]:
    folder = tmp_path_factory.mktemp("calling")
    make_tok_b(folder, chat_template=HERMES)
    with http_frontend(folder, max_model_len=4096) as frontend:
        yield frontend


@pytest.fixture
def frontend(calling: HttpFrontend) -> HttpFrontend:
    calling.reset()
    return calling


def prompt_of(frontend: HttpFrontend) -> str:
    submit = frontend.scheduler.expect(Submit)
    return frontend.tokenizer.decode(memoryview(submit.prompt).cast("i").tolist(), skip_special_tokens=False)


def deltas(events: Events) -> list[dict[str, Any]]:
    """The deltas of calls, in order."""
    choices = [choice for chunk in events.chunks for choice in chunk["choices"]]
    return [call for choice in choices for call in choice["delta"].get("tool_calls", ())]


def whole_choice(frontend: HttpFrontend, **fields: object) -> dict[str, Any]:
    answer = frontend.http.post(CHAT, json={"messages": ASK, "tools": TOOLS, **fields})
    assert answer.status_code == 200, answer.text
    choice: dict[str, Any] = answer.json()["choices"][0]
    return choice


def test_tools_are_shown_to_the_model_unless_none_is_chosen(frontend: HttpFrontend) -> None:
    whole_choice(frontend)
    assert f"Tools: {json.dumps(TOOLS)}" in prompt_of(frontend)
    frontend.say(WEATHER)
    assert whole_choice(frontend, tool_choice="none")["message"]["content"] == WEATHER
    assert "Tools:" not in prompt_of(frontend)


def test_calls_of_tools(frontend: HttpFrontend) -> None:
    frontend.say(f"Let me look.\n{WEATHER}\n{TIME}")
    choice = whole_choice(frontend)
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert message["content"] == "Let me look."
    calls = message["tool_calls"]
    assert [call["type"] for call in calls] == ["function", "function"]
    assert [call["function"]["name"] for call in calls] == ["weather", "time"]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"city": "Zürich"}, {}]
    assert len({call["id"] for call in calls}) == 2
    frontend.say(WEATHER)
    assert whole_choice(frontend)["message"]["content"] is None


def test_at_most_one_call(frontend: HttpFrontend) -> None:
    frontend.say(f"{WEATHER}\n{TIME}")
    choice = whole_choice(frontend, parallel_tool_calls=False)
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["weather"]


def test_o54_a_streamed_call_has_its_id_and_name_once(frontend: HttpFrontend) -> None:
    frontend.say(f"{WEATHER}\n{TIME}")
    events = post_stream(frontend.http, CHAT, {"messages": ASK, "tools": TOOLS})
    found: dict[int, dict[str, str]] = {}
    for delta in deltas(events):
        assert isinstance(delta["index"], int)
        if delta["index"] not in found:
            assert delta["id"] and delta["type"] == "function"
            assert set(delta["function"]) == {"name", "arguments"}
            found[delta["index"]] = {"name": delta["function"]["name"], "arguments": ""}
        else:
            assert set(delta) == {"index", "function"}
            assert set(delta["function"]) == {"arguments"}
        found[delta["index"]]["arguments"] += delta["function"]["arguments"]
    assert list(found) == [0, 1]
    calls = whole_choice(frontend)["message"]["tool_calls"]
    assert list(found.values()) == [call["function"] for call in calls]
    assert events.finish == {0: ["tool_calls"]}


@pytest.mark.parametrize("cut", [0, 10, 40])
def test_o55_a_call_that_was_cut_ends_with_length(frontend: HttpFrontend, cut: int) -> None:
    frontend.say(WEATHER)
    tokens = len(frontend.ids(WEATHER)) - cut
    body = {"messages": ASK, "tools": TOOLS, "max_tokens": tokens}
    expected = "length" if cut else "tool_calls"
    assert whole_choice(frontend, max_tokens=tokens)["finish_reason"] == expected
    assert post_stream(frontend.http, CHAT, body).finish == {0: [expected]}


def test_a_malformed_call_is_content(frontend: HttpFrontend) -> None:
    text = "<tool_call>weather(Paris)</tool_call>"
    frontend.say(text)
    choice = whole_choice(frontend)
    assert choice["message"]["content"] == text
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"


def test_a_loop_with_two_calls(frontend: HttpFrontend) -> None:
    frontend.say(f"{WEATHER}{TIME}")
    message = whole_choice(frontend)["message"]
    frontend.scheduler.seen.queue.clear()
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"result {index}"}
        for index, call in enumerate(message["tool_calls"])
    ]
    frontend.say("Sunny.")
    choice = whole_choice(frontend, messages=[*ASK, message, *results])
    assert choice["message"]["content"] == "Sunny."
    shown = prompt_of(frontend)
    # Templates print arguments as the object that clients sent as text.
    assert '{"name": "weather", "arguments": {"city": "Zürich"}}' in shown
    assert "<|im_start|>tool\nresult 0<|im_end|>\n<|im_start|>tool\nresult 1<|im_end|>" in shown


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search", "function": {"name": "f"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": None, "tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "nope"}}}, "tool_choice"),
    ],
)
def test_wrong_tools_are_refused(frontend: HttpFrontend, fields: dict[str, Any], param: str) -> None:
    answer = frontend.http.post(CHAT, json={"messages": ASK, "tools": TOOLS, **fields})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_tools_are_counted_by_tokenize(frontend: HttpFrontend) -> None:
    plain = frontend.http.post("/tokenize", json={"messages": ASK}).json()["count"]
    assert frontend.http.post("/tokenize", json={"messages": ASK, "tools": TOOLS}).json()["count"] > plain


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFrontend]:
    folder = tmp_path_factory.mktemp("thinking")
    make_tok_b(folder, chat_template=THINKING)
    with http_frontend(folder, max_model_len=4096) as frontend:
        yield frontend


@pytest.mark.parametrize(
    ("text", "fields", "reasoning", "content"),
    [
        ("I see.\n</think>\n\nHello", {}, "I see.", "Hello"),
        ("<think>I see.</think>Hello", {}, "I see.", "Hello"),
        ("I see", {"max_tokens": 4}, "I se", ""),
        ("Hello", {"chat_template_kwargs": {"enable_thinking": False}}, None, "Hello"),
        ("I see.</think>Hello", {"include_reasoning": False}, None, "Hello"),
    ],
)
def test_reasoning_is_no_content(
    thinking: HttpFrontend, text: str, fields: dict[str, Any], reasoning: str | None, content: str
) -> None:
    thinking.say(text)
    choice = whole_choice(thinking, **fields)
    assert choice["message"].get("reasoning_content") == reasoning
    assert choice["message"]["content"] == content
    events = post_stream(thinking.http, CHAT, {"messages": ASK, "tools": TOOLS, **fields})
    parts = [choice["delta"] for chunk in events.chunks for choice in chunk["choices"]]
    assert "".join(part.get("reasoning_content", "") for part in parts) == (reasoning or "")
    assert "".join(part.get("content", "") for part in parts) == content


def test_reasoning_may_lead_to_calls(thinking: HttpFrontend) -> None:
    thinking.say(f"A <tool_call> would help.</think>\n{TIME}")
    choice = whole_choice(thinking)
    assert choice["message"]["reasoning_content"] == "A <tool_call> would help."
    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == "tool_calls"


def test_the_owner_says_how_the_model_calls_tools(tmp_path: Path) -> None:
    make_tok_b(tmp_path)
    with http_frontend(tmp_path) as frontend:
        refused = frontend.http.post(CHAT, json={"messages": ASK, "tools": TOOLS})
        assert refused.status_code == 400
        assert "--tool-call-parser" in refused.json()["error"]["message"]
    with http_frontend(tmp_path, tool_call_parser="mistral") as frontend:
        frontend.say('[TOOL_CALLS] [{"name": "time", "arguments": {}}]')
        [call] = whole_choice(frontend)["message"]["tool_calls"]
        assert len(call["id"]) == 9
        assert not frontend.scheduler.expect(Submit).params.skip_special_tokens


def test_a_required_call_is_enforced(frontend: HttpFrontend) -> None:
    frontend.say('[{"name": "weather", "arguments": {"city": "Bern"}}, {"name": "time", "arguments": {}}]')
    choice = whole_choice(frontend, tool_choice="required")
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["weather", "time"]
    schema = grammar_of(frontend)
    assert schema["minItems"] == 1
    assert "maxItems" not in schema
    names = [call["properties"]["name"]["const"] for call in schema["items"]["anyOf"]]
    assert names == ["weather", "time"]
    whole_choice(frontend, tool_choice="required", parallel_tool_calls=False)
    assert grammar_of(frontend)["maxItems"] == 1


def test_a_named_call_is_enforced(frontend: HttpFrontend) -> None:
    frontend.say('{"city": "Bern"}')
    choice = whole_choice(frontend, tool_choice={"type": "function", "function": {"name": "time"}})
    assert choice["finish_reason"] == "tool_calls"
    [call] = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "time", "arguments": '{"city": "Bern"}'}
    assert grammar_of(frontend) == TOOLS[1]["function"]["parameters"]


def test_what_parameters_refer_to_is_found_inside_the_list(frontend: HttpFrontend) -> None:
    parameters = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}, "more": {"type": "array", "items": {"$ref": "#"}}},
        "$defs": {"A": {"type": "object", "properties": {"b": {"$ref": "#/$defs/A"}}}},
    }
    tools = [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in "fg"]
    frontend.say("[")
    whole_choice(frontend, tools=tools, tool_choice="required")
    schema = grammar_of(frontend)
    assert set(schema["$defs"]) == {"0.", "0.A", "1.", "1.A"}
    assert schema["$defs"]["1.A"]["properties"]["b"] == {"$ref": "#/$defs/1.A"}


def grammar_of(frontend: HttpFrontend) -> dict[str, Any]:
    wanted = frontend.scheduler.expect(Submit).params.structured_outputs
    assert wanted is not None and isinstance(wanted.json, str)
    schema: dict[str, Any] = json.loads(wanted.json)
    return schema


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_tools_and_another_grammar_do_not_go_together(frontend: HttpFrontend, choice: str) -> None:
    body = {
        "messages": ASK,
        "tools": TOOLS,
        "tool_choice": choice,
        "response_format": {"type": "json_object"},
    }
    answer = frontend.http.post(CHAT, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tool_choice"


def test_a_bad_schema_of_a_tool_is_refused(frontend: HttpFrontend) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "nope"}}}]
    body = {"messages": ASK, "tools": tools, "tool_choice": "required"}
    answer = frontend.http.post(CHAT, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tools"


def test_a_grammar_ends_reasoning_that_the_prompt_opened(thinking: HttpFrontend) -> None:
    thinking.reset()
    thinking.say('{"a": 1}')
    choice = whole_choice(thinking, tools=None, response_format={"type": "json_object"})
    assert choice["message"]["content"] == '{"a": 1}'
    assert prompt_of(thinking).endswith("<think>\n\n</think>\n\n")
