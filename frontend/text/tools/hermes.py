"""Hermes and Qwen: `<tool_call>{"name": "f", "arguments": {...}}</tool_call>`, once for each call."""

from collections.abc import Sequence

from ..answer.pieces import Piece
from .json_call import JsonCall
from .section import Calls, MalformedError, Section

_CLOSING = "</tool_call>"


class HermesSection(Section):
    """From behind the opening tag to the closing one."""

    def __init__(self, calls: Calls) -> None:
        self._call = JsonCall(calls)
        self._behind = ""  # the object

    @property
    def held(self) -> str:
        return self._call.held + self._behind

    @property
    def between_calls(self) -> bool:
        return self._call.done

    @property
    def closed(self) -> bool:
        return self._behind.endswith(_CLOSING)

    def step(self, c: str) -> Sequence[Piece]:
        if not self._call.done:
            return self._call.step(c)
        tag = self._behind.lstrip() + c
        if tag.strip() and not _CLOSING.startswith(tag):
            raise MalformedError
        self._behind += c
        return ()
