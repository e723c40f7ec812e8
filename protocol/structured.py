"""Output that must obey a grammar: what a request asks for, and the one form in which llguidance reads it."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from .errors import InvalidRequestError

# Compiling takes a fraction of a second within these bounds. Time grows with the square of an expression.
MAX_SCHEMA_LENGTH = 40 << 10  # characters, of a JSON schema or of all choices
MAX_GRAMMAR_LENGTH = 16 << 10
MAX_REGEX_LENGTH = 4 << 10

_MAX_LENGTH = {
    "json": MAX_SCHEMA_LENGTH,
    "choice": MAX_SCHEMA_LENGTH,
    "grammar": MAX_GRAMMAR_LENGTH,
    "regex": MAX_REGEX_LENGTH,
    "whitespace_pattern": MAX_REGEX_LENGTH,
}
# llguidance's bound on terminals: those of a grammar can double from line to line.
_GRAMMAR_FUEL = 5_000
_FUEL = 1_000_000
_KINDS = ("json", "json_object", "regex", "choice", "grammar")
_OPTIONS = ("disable_any_whitespace", "disable_additional_properties")
# A space, or one new line and what indents it: small models go on forever with whitespace that is unbounded.
_WHITESPACE = r"\x20|\r?\n[\x20\t]{0,32}"


class StructuredOutputsParams(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Exactly one of json, json_object, regex, choice and grammar; names and meanings are vLLM's.

    Raises InvalidRequestError (a ValueError) for another number of them and for a value of the wrong form.
    Whether a schema, a regular expression or a grammar can be compiled is seen when the request is made.
    """

    json: str | dict[str, Any] | None = None  # JSON schema, an object or its text; text after construction
    json_object: bool | None = None  # true: any JSON object
    regex: str | None = None  # the whole output matches; Rust's syntax, without look-around
    choice: list[str] | None = None  # the output is one of these
    grammar: str | None = None  # context-free grammar in Lark's syntax; the doors of a server also take GBNF
    whitespace_pattern: str | None = None  # regular expression of what may stand between the parts of JSON
    disable_any_whitespace: bool = False  # nothing may stand there
    disable_additional_properties: bool = False  # objects of the schema have the properties it names alone

    def __post_init__(self) -> None:
        if isinstance(self.json, dict):
            self.json = _dump(self.json)
        if isinstance(self.choice, tuple):
            self.choice = list(self.choice)
        self.validate()

    def validate(self) -> None:
        """Check every field; raises InvalidRequestError."""
        given = [name for name in _KINDS if getattr(self, name) not in (None, False)]
        if len(given) != 1:
            raise _wrong(
                f"exactly one of {', '.join(_KINDS)} must be given, got {' and '.join(given) or 'none'}"
            )
        for name in _OPTIONS:
            if not isinstance(getattr(self, name), bool):
                raise _wrong(f"{name} must be true or false, got {getattr(self, name)!r}")
        if self.json_object not in (None, False, True):
            raise _wrong(f"json_object must be true, got {self.json_object!r}")
        if self.choice is not None:
            _check_choice(self.choice)
        for name in ("json", "regex", "grammar", "whitespace_pattern"):
            _check_text(name, getattr(self, name))
        if isinstance(self.json, str):
            _check_patterns(_load(self.json))

    @property
    def lexer_fuel(self) -> int:
        """What llguidance may spend on building the lexer."""
        return _FUEL if self.grammar is None else _GRAMMAR_FUEL

    def to_llguidance(self) -> str:
        """The grammar as llguidance reads it: the same text wherever it is compiled."""
        if self.regex is not None:
            return _lark(f"start: {_lark_regex(self.regex)}")
        if self.choice is not None:
            return _lark("start: " + " | ".join(json.dumps(text, ensure_ascii=False) for text in self.choice))
        if self.grammar is not None:
            return _lark(self.grammar)
        schema = _load(self.json) if isinstance(self.json, str) else {"type": "object"}
        if self.disable_additional_properties:
            schema = _closed(schema)
        return json.dumps({"grammars": [{"json_schema": {**schema, "x-guidance": self._json_options()}}]})

    def _json_options(self) -> dict[str, object]:
        if self.disable_any_whitespace:
            return {"whitespace_flexible": False}
        return {"whitespace_pattern": self.whitespace_pattern or _WHITESPACE}


def _lark(grammar: str) -> str:
    return json.dumps({"grammars": [{"lark_grammar": grammar}]})


def _lark_regex(regex: str) -> str:
    """The expression between slashes, as Lark writes one; a newline in it would end the rule."""
    out, escaped = [], False
    for character in regex:
        if character == "\n":
            out.append("n" if escaped else "\\n")
        else:
            out.append(f"\\{character}" if character == "/" and not escaped else character)
        escaped = character == "\\" and not escaped
    return f"/{''.join(out)}/"


def _closed(schema: Any) -> Any:
    """The schema with additionalProperties false wherever it names properties and does not say."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(part) for name, part in schema.items()}
    if "properties" in closed and "patternProperties" not in closed:
        closed.setdefault("additionalProperties", False)
    return closed


def _dump(schema: dict[str, Any]) -> str:
    try:
        return json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise _wrong(f"json must be a JSON schema: {error}") from error


def _load(schema: str) -> dict[str, Any]:
    try:
        loaded = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise _wrong(f"json must be a JSON schema: {error}") from error
    if not isinstance(loaded, dict):
        raise _wrong(f"json must be a JSON schema, an object, got {type(loaded).__name__}")
    return loaded


def _check_choice(choice: object) -> None:
    if not isinstance(choice, list) or not choice or not all(isinstance(one, str) and one for one in choice):
        raise _wrong("choice must be a list of one or more strings that are not empty")
    _check_text("choice", "".join(choice))


def _check_text(name: str, text: object) -> None:
    if text is None:
        return
    if not isinstance(text, str) or not text.strip():
        raise _wrong(f"{name} must be a string that is not empty, got {text!r}")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise _wrong(f"{name} must be text, got half of a surrogate pair")
    if len(text) > _MAX_LENGTH[name]:
        raise _wrong(f"{name} must have at most {_MAX_LENGTH[name]} characters, got {len(text)}")


def _check_patterns(schema: object) -> None:
    cost = sum(len(pattern) ** 2 for pattern in _patterns(schema))
    if cost > MAX_REGEX_LENGTH**2:
        raise _wrong("the patterns in json are too long to be compiled in time")


def _patterns(schema: object) -> Iterator[str]:
    """Every regular expression of a schema."""
    if isinstance(schema, list):
        for part in schema:
            yield from _patterns(part)
    elif isinstance(schema, dict):
        for name, part in schema.items():
            if name == "pattern" and isinstance(part, str):
                yield part
            elif name == "patternProperties" and isinstance(part, dict):
                yield from part
            yield from _patterns(part)


def _wrong(what: str) -> InvalidRequestError:
    return InvalidRequestError(f"structured_outputs: {what}", param="structured_outputs")
