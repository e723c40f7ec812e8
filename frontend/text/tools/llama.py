"""Llama 3: the answer is `{"name": "f", "parameters": {...}}`; several are parted by semicolons."""

from collections.abc import Sequence

from ..answer.pieces import Piece
from .json_call import JsonCall
from .section import Calls, MalformedError, Section

_BETWEEN = " \t\r\n;,"


class LlamaSection(Section):
    """Objects up to the end of the answer. All may may begin with a brace: only names of tools make calls."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._call: JsonCall | None = None  # that is being read
        self._between = ""

    @property
    def held(self) -> str:
        return self._between + (self._call.held if self._call is not None else "")

    @property
    def between_calls(self) -> bool:
        return self._call is None and self._calls.count > 0

    @property
    def closed(self) -> bool:
        return False

    def step(self, c: str) -> Sequence[Piece]:
        if self._call is None:
            if c != "{":
                if c not in _BETWEEN:
                    raise MalformedError
                self._between += c
                return ()
            self._call = JsonCall(self._calls, tools_only=True)
        pieces = self._call.step(c)
        if pieces:
            self._between = ""
        if self._call.done:
            self._call = None
        return pieces
