"""One JSON object or list, read a character at a time (RFC 8259)."""

import re

from .section import MalformedError

_SPACE = " \t\n\r"
_LITERAL = frozenset("0123456789+-.eEtrufalsn")
_WHOLE_LITERAL = re.compile(r"true|false|null|-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_CLOSERS = {"{": "}", "[": "]"}

# What may come next.
_VALUE, _FIRST_VALUE, _KEY, _FIRST_KEY, _COLON, _NEXT, _IN_KEY, _IN_STRING, _IN_LITERAL = range(9)


class JsonScanner:
    """Checks that a text is JSON, as far as it goes.

    Attributes:
        depth: objects and lists that are open. done: the outermost one was closed.
    """

    def __init__(self) -> None:
        self.done = False
        self._open: list[str] = []
        self._expects = _VALUE
        self._escaped = False
        self._hex_digits = 0  # that are still to come of a \\u escape
        self._literal = ""

    @property
    def depth(self) -> int:
        return len(self._open)

    @property
    def in_string(self) -> bool:
        return self._expects in (_IN_STRING, _IN_KEY)

    @property
    def at_value(self) -> bool:
        """The next character that is no space begins a value."""
        return self._expects in (_VALUE, _FIRST_VALUE)

    @property
    def at_colon(self) -> bool:
        """A key was read."""
        return self._expects == _COLON

    @property
    def between(self) -> bool:
        """A value was read, and the next may come."""
        return self._expects == _NEXT

    def step(self, c: str) -> str:
        """Take a character; returns it, escaped where a model forgot to.

        Raises MalformedError, and then did not take it.
        """
        if self.in_string:
            return self._in_string(c)
        if self._expects == _IN_LITERAL:
            if c in _LITERAL:
                self._literal += c
                return c
            if not _WHOLE_LITERAL.fullmatch(self._literal):
                raise MalformedError
            self._expects = _NEXT
        if c not in _SPACE:
            self._outside(c)
        return c

    def _outside(self, c: str) -> None:
        expects = self._expects
        if expects == _NEXT or (expects in (_FIRST_VALUE, _FIRST_KEY) and c in "]}"):
            self._next(c)
        elif expects in (_VALUE, _FIRST_VALUE):
            self._begin_value(c)
        elif expects == _COLON and c == ":":
            self._expects = _VALUE
        elif expects in (_KEY, _FIRST_KEY) and c == '"':
            self._expects = _IN_KEY
        else:
            raise MalformedError

    def _begin_value(self, c: str) -> None:
        if c in _CLOSERS:
            self._open.append(c)
            self._expects = _FIRST_KEY if c == "{" else _FIRST_VALUE
        elif self._open and c == '"':
            self._expects = _IN_STRING
        elif self._open and c in _LITERAL:
            self._literal, self._expects = c, _IN_LITERAL
        else:
            raise MalformedError

    def _next(self, c: str) -> None:
        if c == ",":
            self._expects = _KEY if self._open[-1] == "{" else _VALUE
        elif c == _CLOSERS[self._open[-1]]:
            self._open.pop()
            self.done = not self._open
            self._expects = _NEXT
        else:
            raise MalformedError

    def _in_string(self, c: str) -> str:
        if self._hex_digits:
            if c not in "0123456789abcdefABCDEF":
                raise MalformedError
            self._hex_digits -= 1
        elif self._escaped:
            if c not in '"\\/bfnrtu':
                raise MalformedError
            self._escaped = False
            self._hex_digits = 4 if c == "u" else 0
        elif c == "\\":
            self._escaped = True
        elif c == '"':
            self._expects = _COLON if self._expects == _IN_KEY else _NEXT
        elif c < " ":
            return f"\\u{ord(c):04x}"
        return c
