"""The jinja environment that chat templates are written for, as transformers 5 defines it.

Templates come with models and are not trusted: they run in jinja's immutable sandbox, and what they are
given is plain JSON data.
"""

import json
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace


class RefusedByTemplateError(TemplateError):
    """The template called `raise_exception`: it does not accept these messages."""


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks what the assistant wrote; it renders as it is."""

    tags = {"generation"}  # noqa: RUF012 (jinja asks for this)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        # A call block, not the bare body: variables set inside stay inside.
        return nodes.CallBlock(self.call_method("_show"), [], [], body).set_lineno(line)

    def _show(self, caller: Callable[[], str]) -> str:
        return caller()


class _TemplateNamespace(Namespace):
    """`namespace()` without underscore names, which could reach into the interpreter."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        values = dict(*args, **attributes)
        for name in values:
            _check_attribute(name)
        super().__init__(values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        super().__setitem__(name, value)


def _check_attribute(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}: names must not begin with an underscore")


class _TemplateDict:
    """`dict(...)` without the type's own attributes."""

    def __call__(self, *args: Any, **values: Any) -> dict[Any, Any]:
        return dict(*args, **values)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


def _raise_exception(message: str) -> NoReturn:
    raise RefusedByTemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes `<`, `>`, `&` and `'` for HTML; a prompt needs them as they are."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _make_environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.globals["dict"] = _TemplateDict()
    environment.globals["namespace"] = _TemplateNamespace
    return environment


@lru_cache(maxsize=64)
def compile_template(source: str) -> jinja2.Template:
    """The compiled template. Raises jinja2.TemplateSyntaxError."""
    return _make_environment().from_string(source)


@lru_cache(maxsize=64)
def parse_template(source: str) -> nodes.Template:
    """The template's syntax tree. Raises jinja2.TemplateSyntaxError."""
    return _make_environment().parse(source)
