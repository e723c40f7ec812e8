"""Calls in each format: found, passed on as they come, and left as content where they are none."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.frontend.text.answer.pieces import CallArguments, CallStart, Content, Piece, PieceList
from octavo.frontend.text.tools.formats import FORMATS, REQUIRED, ToolFormat, named
from octavo.frontend.text.tools.reader import CallReader

TOOLS = frozenset({"f", "get_weather"})
ALL = {**FORMATS, "required": REQUIRED, "named": named("f")}
WEATHER, F = {"city": "Paris", "days": 2}, {"a": [1, {"b": None}], "c": 'x"\\{}'}

TWO_CALLS = {
    "hermes": (
        '<tool_call>\n{"name": "get_weather", "arguments": %s}\n</tool_call>\n'
        '<tool_call>\n{"name": "f", "arguments": %s}\n</tool_call>'
    ),
    "llama3_json": '<|python_tag|>{"name": "get_weather", "parameters": %s}; {"name": "f", "parameters": %s}',
    "mistral": '[TOOL_CALLS] [{"name": "get_weather", "arguments": %s}, {"name": "f", "arguments": %s}]',
    "required": '[{"name": "get_weather", "arguments": %s},{"name": "f", "arguments": %s}]',
}


def read(form: ToolFormat, *parts: str) -> tuple[list[Piece], bool]:
    """The pieces of a text that comes in parts, joined where they can be, and whether it ends well."""
    reader, found = CallReader(form, TOOLS), PieceList()
    for part in parts:
        for piece in reader.push(part):
            found.add(piece)
    for piece in reader.finish():
        found.add(piece)
    return found.take(), reader.complete


def content(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, Content))


def calls(pieces: list[Piece]) -> list[tuple[str, str]]:
    """Names and arguments of the calls."""
    found: list[list[str]] = []
    for piece in pieces:
        if isinstance(piece, CallStart):
            assert piece.index == len(found)
            found.append([piece.name, ""])
        elif isinstance(piece, CallArguments):
            found[piece.index][1] += piece.text
    return [(name, text) for name, text in found]


def values(pieces: list[Piece]) -> list[tuple[str, Any]]:
    return [(name, json.loads(text)) for name, text in calls(pieces)]


@pytest.mark.parametrize("name", TWO_CALLS)
def test_two_calls(name: str) -> None:
    pieces, complete = read(ALL[name], TWO_CALLS[name] % (json.dumps(WEATHER), json.dumps(F)))
    assert values(pieces) == [("get_weather", WEATHER), ("f", F)]
    assert content(pieces) == ""
    assert complete


def test_two_pythonic_calls() -> None:
    text = "[get_weather(city='Paris', days=2), f(a=[1, {'b': None}], c='x\"\\\\{}')]"
    pieces, complete = read(FORMATS["pythonic"], text)
    assert values(pieces) == [("get_weather", WEATHER), ("f", F)]
    assert complete


def test_the_newer_mistral_form() -> None:
    text = '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{}'
    pieces, complete = read(FORMATS["mistral"], text)
    assert values(pieces) == [("get_weather", {"city": "Paris"}), ("f", {})]
    assert complete


def test_the_arguments_of_a_named_tool() -> None:
    pieces, complete = read(named("f"), ' {"a": 1}\n')
    assert calls(pieces) == [("f", '{"a": 1}')]
    assert content(pieces) == ""
    assert complete


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "f"}', {}),
        ('{"name": "f", "arguments": null}', {}),
        ('{"name": "f", "arguments": {}}', {}),
        ('{"arguments": {"a": 1}, "name": "f"}', {"a": 1}),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', {"a": 1}),
        ('{"type": "function", "function": {"name": "f", "parameters": {"a": 1}}}', {"a": 1}),
        ('{"id": 7, "name": "f", "arguments": {"a": "x\ny"}, "more": [1]}', {"a": "x\ny"}),
        ('{"name":"f","arguments":{"a":1}', {"a": 1}),
    ],
)
def test_what_models_make_of_a_call(text: str, expected: object) -> None:
    pieces, complete = read(FORMATS["hermes"], f"<tool_call>{text}</tool_call>")
    assert values(pieces) == [("f", expected)]
    assert complete


def test_arguments_are_passed_on_as_they_come() -> None:
    reader = CallReader(FORMATS["hermes"], TOOLS)
    assert reader.push('<tool_call>{"name": "f", "arguments": {') == []
    assert reader.push('"a"') == [CallStart(0, "f"), CallArguments(0, '{"a"')]
    assert reader.push(": [1,") == [CallArguments(0, ": [1,")]
    assert not reader.complete
    assert reader.push(" 2]}") == [CallArguments(0, " 2]}")]
    assert reader.complete


def test_pythonic_arguments_are_passed_on_one_by_one() -> None:
    reader = CallReader(FORMATS["pythonic"], TOOLS)
    assert reader.push("[f(a=1") == []
    assert reader.push(", b=") == [CallStart(0, "f"), CallArguments(0, '{"a": 1')]
    assert reader.push("true)") == [CallArguments(0, ', "b": true}')]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>{"name": "f", "arguments": {\'a\': 1}}</tool_call>'),
        ("hermes", '<tool_call>{"name": 3, "arguments": {"a": 1}}</tool_call>'),
        ("hermes", '<tool_call>{"arguments": {"a": 1}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
        ("hermes", "<tool_call>f(1)</tool_call>"),
        ("hermes", "<tool_call>"),
        ("hermes", "a <tool_cal and\n no more\n"),
        ("hermes", '<tool_call>{"name": "f", "argu'),
        ("llama3_json", '{"city": "Paris"}'),
        ("llama3_json", '{"name": "unknown", "parameters": {"a": 1}}'),
        ("llama3_json", 'Use {"name": "f", "parameters": {"a": 1}}.'),
        ("llama3_json", "<|python_tag|>print(1)"),
        ("llama3_json", "  leading space stays"),
        ("mistral", "[TOOL_CALLS] I could call"),
        ("mistral", '[TOOL_CALLS][{"nam": "f"}]'),
        ("mistral", "[TOOL_CALLS][1]"),
        ("pythonic", "[1, 2]"),
        ("pythonic", "[unknown(a=1)]"),
        ("pythonic", "[f(1)]"),
        ("pythonic", "[f(a=open('x'))]"),
        ("pythonic", "[f(a=)]"),
        ("pythonic", "[f(a=1e999)]"),
        ("pythonic", "[f(a=])]"),
        ("named", "no object"),
        ("required", "[]x"),
    ],
)
def test_what_is_no_call_is_content(name: str, text: str) -> None:
    pieces, complete = read(ALL[name], text)
    assert pieces == [Content(text)]
    assert not complete


def test_a_second_mark_may_open_the_call() -> None:
    pieces, _ = read(
        FORMATS["hermes"], '<tool_call><tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    )
    assert content(pieces) == "<tool_call>"
    assert values(pieces) == [("f", {"a": 1})]


def test_a_call_that_breaks_off_stays_and_the_rest_is_content() -> None:
    pieces, complete = read(
        FORMATS["hermes"], '<tool_call>{"name": "f", "arguments": {"a": oops}}</tool_call> x'
    )
    assert calls(pieces) == [("f", '{"a": ')]
    assert content(pieces) == "oops}}</tool_call> x"
    assert not complete


def test_a_call_that_is_cut_is_not_complete() -> None:
    pieces, complete = read(FORMATS["hermes"], '<tool_call>{"name": "f", "arguments": {"a": [1, ')
    assert calls(pieces) == [("f", '{"a": [1, ')]
    assert not complete


def test_space_around_calls_is_no_content() -> None:
    call = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    assert content(read(FORMATS["hermes"], f"\n {call}\n{call}\n")[0]) == ""
    assert content(read(FORMATS["hermes"], f"Look:\n{call}\n")[0]) == "Look:"
    assert content(read(FORMATS["hermes"], f"\n{call}\n so")[0]) == "so"
    assert content(read(FORMATS["hermes"], f"Look:\n{call}\nand so")[0]) == "Look:\n\nand so"


FRAGMENTS = [
    "<tool_call>",
    "</tool_call>",
    "<tool",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|python_tag|>",
    '{"name": "f", "arguments": {"a": 1}}',
    '{"name": "get_weather", "parameters": ',
    '{"name": "f", "arguments": {"c": "\\u00e9 \\" }"}}',
    "[f(a=1, b='),(')",
    ", get_weather()",
    '{"a":',
    "[",
    "]",
    "{",
    "}",
    '"',
    "\\",
    "(",
    ")",
    "=",
    ",",
    ";",
    "-1.5e3",
    " ",
    "\n",
    "f",
    "語",
]


@settings(max_examples=400, deadline=None)
@given(
    name=st.sampled_from(sorted(ALL)),
    fragments=st.lists(st.sampled_from(FRAGMENTS), max_size=12),
    data=st.data(),
)
def test_the_borders_of_chunks_do_not_matter(name: str, fragments: list[str], data: st.DataObject) -> None:
    text = "".join(fragments)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = read(ALL[name], text)
    assert read(ALL[name], *parts) == whole
    assert read(ALL[name], *text) == whole
    # Nothing is invented: without calls the text is the content, with complete ones each has an object.
    pieces, complete = whole
    if not calls(pieces):
        assert content(pieces) == text
    if complete:
        assert all(isinstance(json.loads(arguments), dict) for _, arguments in calls(pieces))


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(TWO_CALLS)),
    first=st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
            ),
            max_leaves=8,
        ),
        max_size=4,
    ),
    ascii_only=st.booleans(),
)
def test_any_arguments_come_through(name: str, first: dict[str, Any], ascii_only: bool) -> None:
    text = TWO_CALLS[name] % (json.dumps(first, ensure_ascii=ascii_only), json.dumps(WEATHER))
    pieces, complete = read(ALL[name], *text)
    assert values(pieces) == [("get_weather", first), ("f", WEATHER)]
    assert complete
