"""A prompt as the completions API takes it: a text, token ids, or a list of either."""

from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec

from ....protocol.errors import InvalidRequestError

MAX_PROMPTS = 2048  # in one call

T = TypeVar("T")

_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        {"type": "array", "items": {"type": "integer"}, "minItems": 1},
        {
            "type": "array",
            "items": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
            "minItems": 1,
        },
    ]
}

# Left undecoded in the body: the forms of lists differ in their first element only, and a list of lists must
# be counted before millions of them are made.
PromptField = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema=_SCHEMA)]

_text = msgspec.json.Decoder(str)
_texts = msgspec.json.Decoder(list[str])
_ids = msgspec.json.Decoder(list[int])
_id_lists = msgspec.json.Decoder(list[list[int]])

Prompt = str | list[int]


def parse_prompts(raw: msgspec.Raw, param: str = "prompt") -> list[Prompt]:
    """The prompts of a call, at least one. Raises InvalidRequestError."""
    body = bytes(raw).lstrip()
    if body.startswith(b'"'):
        return [_decode(_text, body, param)]
    if not body.startswith(b"["):
        raise InvalidRequestError(
            f"{param} must be a string, a list of strings, a list of token ids, or a list of such lists",
            param=param,
        )
    inner = body[1:].lstrip()
    if inner.startswith(b"["):
        # Lists of token ids hold no strings, so every bracket begins a list.
        _check_count(body.count(b"[") - 1, param)
        return _not_empty([_not_empty(ids, param) for ids in _decode(_id_lists, body, param)], param)
    if inner.startswith(b'"'):
        texts = _decode(_texts, body, param)
        _check_count(len(texts), param)
        return [*texts]
    return [_not_empty(_decode(_ids, body, param), param)]


def _decode(decoder: "msgspec.json.Decoder[T]", body: bytes, param: str) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        message = str(error).replace("`$", f"`{param}")
        raise InvalidRequestError(f"{param}: {message[:1].lower()}{message[1:]}", param=param) from error


def _check_count(count: int, param: str) -> None:
    if count > MAX_PROMPTS:
        raise InvalidRequestError(
            f"{param} must hold at most {MAX_PROMPTS} prompts, got {count}", param=param
        )


S = TypeVar("S", bound=Sequence[object])


def _not_empty(values: S, param: str) -> S:
    if not values:
        raise InvalidRequestError(f"{param} must not be an empty list", param=param)
    return values
