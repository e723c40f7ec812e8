"""The message of a chat's answer: content, reasoning and calls, whole or as deltas."""

import secrets
from collections.abc import Sequence

import msgspec

from ...text.answer.pieces import CallArguments, CallStart, Content, Piece, Reasoning
from ...text.tools.formats import ToolFormat
from .events import json_text

_ID_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


class CalledFunction(msgspec.Struct):
    """The function of a call; the arguments are JSON text as the model wrote it."""

    name: str
    arguments: str


class AnswerCall(msgspec.Struct):
    """A tool that the model calls."""

    id: str
    function: CalledFunction
    type: str = "function"


class AnswerMessage(msgspec.Struct, kw_only=True):
    """What the model says."""

    role: str = "assistant"
    content: str | None  # None: nothing but calls
    refusal: None = None
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET  # what led to the answer
    tool_calls: list[AnswerCall] | msgspec.UnsetType = msgspec.UNSET


class DeltaWriter:
    """Writes pieces as deltas."""

    def __init__(self, form: ToolFormat | None) -> None:
        self._form = form

    def write(self, pieces: Sequence[Piece]) -> list[bytes]:
        """The JSON of each piece's delta. A call's first has its id and name, further ones its arguments."""
        return [self._delta(piece) for piece in pieces]

    def _delta(self, piece: Piece) -> bytes:
        match piece:
            case Content(text):
                return b'{"content":%b}' % json_text(text)
            case Reasoning(text):
                return b'{"reasoning_content":%b}' % json_text(text)
            case CallStart(index, name):
                return (
                    b'{"tool_calls":[{"index":%d,"id":%b,"type":"function",'
                    b'"function":{"name":%b,"arguments":""}}]}'
                    % (index, json_text(_new_id(self._form)), json_text(name))
                )
            case CallArguments(index, text):
                return b'{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}' % (index, json_text(text))


def fold_message(pieces: Sequence[Piece], form: ToolFormat | None) -> AnswerMessage:
    """The whole message of an answer's pieces."""
    content, reasoning = "", ""
    calls: list[AnswerCall] = []
    for piece in pieces:
        match piece:
            case Content(text):
                content += text
            case Reasoning(text):
                reasoning += text
            case CallStart(_, name):
                calls.append(AnswerCall(_new_id(form), CalledFunction(name, "")))
            case CallArguments(index, text):
                calls[index].function.arguments += text
    return AnswerMessage(
        content=content or (None if calls else ""),
        reasoning_content=reasoning or msgspec.UNSET,
        tool_calls=calls or msgspec.UNSET,
    )


def _new_id(form: ToolFormat | None) -> str:
    if form is not None and form.id_length:
        return "".join(secrets.choice(_ID_CHARACTERS) for _ in range(form.id_length))
    return f"call_{secrets.token_hex(12)}"
