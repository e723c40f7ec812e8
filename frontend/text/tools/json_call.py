"""A call as a JSON object: `{"name": "f", "arguments": {...}}`."""

import json
from collections.abc import Sequence
from typing import Any, NoReturn, TypeGuard

from ..answer.pieces import CallArguments, CallStart, Piece
from .json_scanner import JsonScanner
from .section import Calls, MalformedError

_ARGUMENTS = ("arguments", "parameters")
_KEYS = frozenset({"name", "type", "id", "index", "function", *_ARGUMENTS})


class JsonCall:
    """Reads one call. Arguments that stand behind the name are passed on as they come.

    Attributes:
        held: text that belongs to no call as long as nothing was passed on. done: the object is closed.
    """

    def __init__(self, calls: Calls, *, tools_only: bool = False) -> None:
        """With `tools_only` an object is a call if it names one of the tools, and has no foreign keys."""
        self.held = ""
        self._calls = calls
        self._tools_only = tools_only
        self._scanner = JsonScanner()
        self._arguments: JsonArguments | None = None
        self._from = 0  # where in `held` the key or value begins that is being read
        self._key = ""
        self._name: str | None = None

    @property
    def done(self) -> bool:
        return self._scanner.done

    def step(self, c: str) -> Sequence[Piece]:
        """Take a character. Raises MalformedError, and then did not take it."""
        if self._arguments is None and self._begins_arguments(c):
            assert self._name is not None
            self._arguments = JsonArguments(self._calls, self._name, self.held)
            for brace in "{}":
                self._scanner.step(brace)  # what holds the arguments sees them as an empty object
        if self._arguments is not None and not self._arguments.done:
            pieces = self._arguments.step(c)
            self.held = self._arguments.held
            return pieces
        if c == "[" and not self._scanner.depth:
            raise MalformedError
        self._scanner.step(c)
        if self._arguments is not None:
            return ()
        self.held += c
        if self._scanner.depth == 1:
            self._follow(c)
        return self._whole() if self.done else ()

    def _begins_arguments(self, c: str) -> bool:
        scanner = self._scanner
        named = self._name is not None and self._key in _ARGUMENTS
        return named and c == "{" and scanner.depth == 1 and scanner.at_value

    def _follow(self, c: str) -> None:
        """Watch for the name among the object's own keys and values."""
        scanner = self._scanner
        if c == '"' and scanner.at_colon:
            self._key = _load(self.held[self._from :])
            if self._tools_only and self._key not in _KEYS:
                self._refuse()
        elif c == '"' and scanner.between and self._key == "name":
            name = _load(self.held[self._from :])
            self._name = name if self._is_tool(name) else None
        elif c in "{,:" and not scanner.in_string:
            self._from = len(self.held)

    def _whole(self) -> Sequence[Piece]:
        """The call as it stands in the complete object, whatever the order of its keys."""
        value = _load(self.held)
        if isinstance(value, dict) and isinstance(value.get("function"), dict):
            value = value["function"]
        name = value.get("name") if isinstance(value, dict) else None
        if not self._is_tool(name):
            self._refuse()
        given = next((value[key] for key in _ARGUMENTS if key in value), None)
        arguments = _load(given or "{}") if isinstance(given, str) else given or {}
        if not isinstance(arguments, dict):
            self._refuse()
        text = given if given and isinstance(given, str) else json.dumps(arguments, ensure_ascii=False)
        index = self._calls.begin()
        self._calls.end()
        self.held = ""
        return [CallStart(index, name), CallArguments(index, text)]

    def _is_tool(self, name: object) -> TypeGuard[str]:
        if not isinstance(name, str) or not name:
            return False
        return name in self._calls.names if self._tools_only else True

    def _refuse(self) -> NoReturn:
        # The last character is not taken: it comes again, as text.
        self.held = self.held[:-1]
        raise MalformedError


class JsonArguments:
    """Reads the arguments of a call whose name is known, and passes them on once they look like JSON.

    Attributes:
        held: text that belongs to no call as long as nothing was passed on. done: the object is closed.
    """

    def __init__(self, calls: Calls, name: str, held: str) -> None:
        """`held` stood before the arguments, and is dropped when the call begins."""
        self.held = held
        self._calls = calls
        self._name = name
        self._scanner = JsonScanner()
        self._waiting = ""
        self._index: int | None = None

    @property
    def done(self) -> bool:
        return self._scanner.done

    def step(self, c: str) -> Sequence[Piece]:
        """Take a character. Raises MalformedError, and then did not take it."""
        if c != "{" and not self._scanner.depth:
            raise MalformedError
        text = self._scanner.step(c)
        pieces: list[Piece] = []
        if self._index is None:
            self._waiting += text
            self.held += c
            if len(self._waiting.rstrip()) < 2:  # a brace alone may be anything
                return ()
            self._index, text = self._calls.begin(), self._waiting
            self.held = ""
            pieces.append(CallStart(self._index, self._name))
        if self.done:
            self._calls.end()
        return [*pieces, CallArguments(self._index, text)]


def _load(text: str) -> Any:
    """The value of a JSON text; None when there is none."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
