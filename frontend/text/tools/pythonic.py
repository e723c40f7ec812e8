"""Pythonic calls, as Llama 3.2 and 4 write them: `[f(a=1, b="x"), g()]`."""

import ast
import json
import re
import warnings
from collections.abc import Sequence

from ..answer.pieces import CallArguments, CallStart, Piece
from .section import Calls, MalformedError, Section

_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_PARAMETER = re.compile(r"[A-Za-z_]\w*")
_OPENERS, _CLOSERS = "([{", ")]}"
_JSON_NAMES = {"true": True, "false": False, "null": None}


class PythonicSection(Section):
    """A list of calls. Anything may begin with a bracket: only names of tools make calls."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._held = ""
        self._call: _Call | None = None  # that is being read
        self._name = ""
        self._awaits = "["  # what may stand here, beside space; "" where a name does
        self._closed = False

    @property
    def held(self) -> str:
        return self._held

    @property
    def between_calls(self) -> bool:
        return self._call is None and self._calls.count > 0

    @property
    def closed(self) -> bool:
        return self._closed

    def step(self, c: str) -> Sequence[Piece]:
        pieces: Sequence[Piece] = ()
        if self._call is not None:
            pieces = self._call.step(c)
            if self._call.done:
                self._call, self._awaits, self._name = None, ",]", ""
        elif self._awaits:
            self._between(c)
        else:
            self._in_name(c)
        self._held = "" if pieces else self._held + c
        return pieces

    def _between(self, c: str) -> None:
        if c.isspace():
            return
        if c not in self._awaits:
            raise MalformedError
        self._closed = c == "]"
        self._awaits = ""

    def _in_name(self, c: str) -> None:
        if c == "(":
            if self._name not in self._calls.names:
                raise MalformedError
            self._call = _Call(self._calls, self._name)
        elif self._name or not c.isspace():
            if not _NAME.fullmatch(self._name + c):
                raise MalformedError
            self._name += c


class _Call:
    """From behind the parenthesis on. Each argument is passed on when it is complete."""

    def __init__(self, calls: Calls, name: str) -> None:
        self.done = False
        self._calls = calls
        self._name = name
        self._index: int | None = None
        self._parameter: str | None = None  # whose value is being read
        self._text = ""
        self._quote = ""
        self._escaped = False
        self._depth = 0
        self._num_arguments = 0

    def step(self, c: str) -> Sequence[Piece]:
        if self._quote:
            self._in_string(c)
        elif self._depth == 0 and c in ",)":
            return self._end_argument(c)
        elif self._parameter is None and c == "=":
            self._begin_value()
            return ()
        elif c in "\"'":
            self._quote = c
        elif c in _OPENERS:
            self._depth += 1
        elif c in _CLOSERS:
            if not self._depth:
                raise MalformedError
            self._depth -= 1
        self._text += c
        return ()

    def _in_string(self, c: str) -> None:
        if self._escaped:
            self._escaped = False
        elif c == "\\":
            self._escaped = True
        elif c == self._quote:
            self._quote = ""

    def _begin_value(self) -> None:
        name = self._text.strip()
        if not _PARAMETER.fullmatch(name):
            raise MalformedError
        self._parameter, self._text = name, ""

    def _end_argument(self, c: str) -> Sequence[Piece]:
        text = ""
        if self._parameter is not None:
            text = f"{json.dumps(self._parameter)}: {_value(self._text)}"
        elif self._text.strip() or (c == "," and not self._num_arguments):
            raise MalformedError
        pieces: list[Piece] = []
        if self._index is None:
            self._index = self._calls.begin()
            pieces.append(CallStart(self._index, self._name))
        if text:
            text = (", " if self._num_arguments else "{") + text
            self._num_arguments += 1
        self._parameter, self._text = None, ""
        if c == ")":
            text += "}" if self._num_arguments else "{}"
            self.done = True
            self._calls.end()
        return [*pieces, CallArguments(self._index, text)]


def _value(text: str) -> str:
    """A Python literal as JSON. Raises MalformedError."""
    text = text.strip()
    if text in _JSON_NAMES:
        return json.dumps(_JSON_NAMES[text])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an escape that Python does not know stays as it is
            value = ast.literal_eval(text)
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise MalformedError from None
