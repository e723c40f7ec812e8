"""Mistral: `[TOOL_CALLS][{"name": "f", "arguments": {...}}, ...]`, or, newer, `[TOOL_CALLS]f[ARGS]{...}`."""

from collections.abc import Sequence

from ..answer.pieces import Piece
from .json_call import JsonArguments, JsonCall
from .section import Calls, MalformedError, Section

_CALL_ID, _ARGS = "[CALL_ID]", "[ARGS]"


class MistralSection(Section):
    """From behind the mark to the end of a list, or of the arguments of one call."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._space = ""
        self._form: MistralList | NamedCall | None = None

    @property
    def held(self) -> str:
        return self._space + (self._form.held if self._form is not None else "")

    @property
    def between_calls(self) -> bool:
        return self._form is not None and self._form.between_calls

    @property
    def closed(self) -> bool:
        return self._form is not None and self._form.closed

    def step(self, c: str) -> Sequence[Piece]:
        if self._form is None:
            if c.isspace():
                self._space += c
                return ()
            self._form = MistralList(self._calls) if c == "[" else NamedCall(self._calls)
        pieces = self._form.step(c)
        if pieces:
            self._space = ""
        return pieces


class MistralList(Section):
    """A JSON list of calls."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._call: JsonCall | None = None  # that is being read
        self._between = ""
        self._awaits = "["  # what may stand here, beside space; `{` begins a call
        self._closed = False

    @property
    def held(self) -> str:
        return self._between + (self._call.held if self._call is not None else "")

    @property
    def between_calls(self) -> bool:
        return self._call is None and self._calls.count > 0

    @property
    def closed(self) -> bool:
        return self._closed

    def step(self, c: str) -> Sequence[Piece]:
        if self._call is None and c == "{" == self._awaits:
            self._call = JsonCall(self._calls)
        if self._call is not None:
            return self._in_call(self._call, c)
        if not c.isspace():
            if c not in self._awaits:
                raise MalformedError
            self._closed = c == "]"
            self._awaits = "{"
        self._between += c
        return ()

    def _in_call(self, call: JsonCall, c: str) -> Sequence[Piece]:
        pieces = call.step(c)
        if pieces:
            self._between = ""
        if call.done:
            self._call, self._awaits = None, ",]"
        return pieces


class NamedCall(Section):
    """A name, perhaps with an id, and arguments."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._head = ""
        self._arguments: JsonArguments | None = None

    @property
    def held(self) -> str:
        return self._arguments.held if self._arguments is not None else self._head

    @property
    def between_calls(self) -> bool:
        return self.closed

    @property
    def closed(self) -> bool:
        return self._arguments is not None and self._arguments.done

    def step(self, c: str) -> Sequence[Piece]:
        if self._arguments is not None:
            return self._arguments.step(c)
        if c == "{":
            name = self._head.removesuffix(_ARGS).partition(_CALL_ID)[0].strip()
            if not name or "[" in name:
                raise MalformedError
            self._arguments = JsonArguments(self._calls, name, self._head)
            return self._arguments.step(c)
        if c.isspace() and self._head and not self._head.endswith(_ARGS):
            raise MalformedError  # a word of a sentence is no name
        self._head += c
        return ()
