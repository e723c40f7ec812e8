"""Messages as clients send them, made into what chat templates read."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ....protocol.errors import InvalidRequestError
from .content_format import ContentFormat

Message = dict[str, Any]

# Newer templates read the first name, older ones one of the others.
_REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_PART_SEPARATOR = "\n"


def prepare_messages(
    messages: Sequence[Any], content_format: ContentFormat, *, arguments_as_text: bool = False
) -> list[Message]:
    """The messages as fresh, plain JSON data, with content in the form that the template expects.

    Keys whose value is None are dropped, content parts are joined for templates that print content as it
    is, and the arguments of earlier tool calls become objects, or JSON text for templates that print them as
    they are. Raises InvalidRequestError for anything that is no text message.
    """
    if not isinstance(messages, list | tuple) or not messages:
        raise InvalidRequestError("messages must be a list of at least one message", param="messages")
    return [_prepare(message, content_format, arguments_as_text) for message in messages]


def plain_data(value: Any) -> Any:
    """A copy of `value` made of JSON types only: what a template may see. Raises InvalidRequestError."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item) for item in value]
    if callable(dump := getattr(value, "model_dump", None)):
        return plain_data(dump())
    for kind in (str, int, float):
        if isinstance(value, kind):  # a subclass, such as an enumeration's member
            return kind(value)
    raise InvalidRequestError(
        f"a {type(value).__name__} cannot be put into a chat template", param="messages"
    )


def _prepare(message: Any, content_format: ContentFormat, arguments_as_text: bool) -> Message:
    plain = plain_data(message)
    if not isinstance(plain, dict) or not isinstance(plain.get("role"), str):
        raise InvalidRequestError("each message must be an object with a role", param="messages")
    prepared = {key: value for key, value in plain.items() if value is not None}
    if "content" in prepared:
        prepared["content"] = _content(prepared["content"], content_format)
    if isinstance(prepared.get("tool_calls"), list):
        for call in prepared["tool_calls"]:
            _turn_arguments(call, as_text=arguments_as_text)
    return _with_reasoning_names(prepared)


def _content(content: Any, content_format: ContentFormat) -> Any:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content_format is ContentFormat.PARTS else content
    if not isinstance(content, list):
        raise InvalidRequestError("a message's content must be a string or a list of parts", param="messages")
    texts = [_part_text(part) for part in content]
    if content_format is ContentFormat.STRING:
        return _PART_SEPARATOR.join(texts)
    return [{"type": "text", "text": text} for text in texts]


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in _TEXT_PARTS:
        raise InvalidRequestError(
            f"content parts of type {kind!r} are not supported, only text", param="messages"
        )
    text = part.get(_TEXT_PARTS[kind])
    if not isinstance(text, str):
        raise InvalidRequestError(f"a content part of type {kind!r} needs a text", param="messages")
    return text


def _turn_arguments(call: Any, *, as_text: bool) -> None:
    """Clients send a call's arguments as JSON text, most templates print them as an object."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return
    if as_text and isinstance(function.get("arguments"), dict):
        function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
    if as_text or not isinstance(function.get("arguments"), str):
        return
    try:
        function["arguments"] = json.loads(function["arguments"] or "{}")
    except ValueError:
        return  # a model's own broken call, sent back to it: the text stays as it was


def _with_reasoning_names(message: Message) -> Message:
    reasoning = next((message[name] for name in _REASONING_FIELDS if name in message), None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}
