"""Messages as clients send them, made into what templates read."""

from enum import StrEnum
from typing import Any

import pytest

from octavo.frontend.text.chat.content_format import ContentFormat
from octavo.frontend.text.chat.messages import plain_data, prepare_messages
from octavo.protocol.errors import InvalidRequestError

PARTS = [{"type": "text", "text": "AA"}, "BB", {"type": "refusal", "refusal": "CC"}]


class Role(StrEnum):
    USER = "user"


class Dumped:
    def model_dump(self) -> dict[str, Any]:
        return {"role": Role.USER, "content": "hi", "name": None}


def prepare(message: Any, form: ContentFormat = ContentFormat.STRING) -> dict[str, Any]:
    return prepare_messages([message], form)[0]


def test_parts_take_the_form_the_template_expects() -> None:
    message = {"role": "user", "content": PARTS}
    texts = [{"type": "text", "text": text} for text in ("AA", "BB", "CC")]
    assert prepare(message)["content"] == "AA\nBB\nCC"
    assert prepare(message, ContentFormat.PARTS)["content"] == texts
    assert prepare(message, ContentFormat.EITHER)["content"] == texts


def test_a_string_becomes_a_part_where_the_template_knows_only_parts() -> None:
    message = {"role": "user", "content": "AA"}
    assert prepare(message)["content"] == "AA"
    assert prepare(message, ContentFormat.PARTS)["content"] == [{"type": "text", "text": "AA"}]
    assert prepare(message, ContentFormat.EITHER)["content"] == "AA"


def test_none_is_absent_and_objects_become_plain() -> None:
    prepared = prepare(Dumped())
    assert prepared == {"role": "user", "content": "hi"}
    assert type(prepared["role"]) is str


def test_the_callers_messages_stay_as_they_are() -> None:
    message = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]}
    assert prepare(message)["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    assert message["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'


@pytest.mark.parametrize(("arguments", "found"), [("", {}), ('{"a"', '{"a"'), ({"b": 2}, {"b": 2})])
def test_tool_call_arguments(arguments: Any, found: Any) -> None:
    message = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}
    assert prepare(message)["tool_calls"][0]["function"]["arguments"] == found


@pytest.mark.parametrize(
    "messages",
    [
        [],
        "hi",
        None,
        ["hi"],
        [{"content": "no role"}],
        [{"role": 3, "content": "x"}],
        [{"role": "user", "content": 3}],
        [{"role": "user", "content": {"type": "text"}}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "user", "content": [{"type": "image_url"}]}],
        [{"role": "user", "content": [3]}],
        [{"role": "user", "content": "x", "extra": object()}],
    ],
)
def test_what_is_no_text_message_is_refused(messages: Any) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        prepare_messages(messages, ContentFormat.STRING)
    assert raised.value.param == "messages"


def test_plain_data_keeps_json_and_copies_it() -> None:
    data = {"a": [1, 2.5, None, True, "x"], "b": ({"c": 1},)}
    copy = plain_data(data)
    assert copy == {"a": [1, 2.5, None, True, "x"], "b": [{"c": 1}]}
    assert copy["a"] is not data["a"]
