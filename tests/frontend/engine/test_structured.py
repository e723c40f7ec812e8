"""Grammars at the door: what compiles, what is refused, and in what time."""

import asyncio
import threading
import time

import pytest

from octavo.frontend.engine.structured import GrammarCompiler, check_structured_outputs
from octavo.protocol.errors import InvalidRequestError
from octavo.protocol.sampling import SamplingParams
from octavo.protocol.structured import MAX_REGEX_LENGTH, StructuredOutputsParams

DEEP: dict[str, object] = {"type": "string"}
for _ in range(200):
    DEEP = {"type": "object", "properties": {"a": DEEP}}


def asking(**fields: object) -> SamplingParams:
    return SamplingParams(structured_outputs=StructuredOutputsParams(**fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {
            "json": {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/x"}},
                "$defs": {"x": {"type": "null"}},
            }
        },
        {"json_object": True, "disable_any_whitespace": True},
        {"json_object": True, "whitespace_pattern": " ?"},
        {"regex": r"a/b\/c" "\nd"},
        {"regex": r"(a{1,100}){1,100}"},
        {"choice": ["a", 'é😀\n"q\\', "/"]},
        {"grammar": 'start: "a" start | "b"'},
        {"grammar": 'start: <|im_end|> "a"'},
        {"grammar": 'root ::= "a" root | "b"'},
    ],
    ids=str,
)
def test_these_compile(fields: dict[str, object]) -> None:
    check_structured_outputs(asking(**fields))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"json": {"type": "objekt"}}, "objekt"),
        ({"json": {"$ref": "#/$defs/none"}}, "none"),
        ({"json": {"$ref": "http://example.com/schema"}}, "example.com"),
        ({"json": {"not": {"type": "string"}}}, "not"),
        ({"json": {"type": "string", "pattern": "("}}, "unclosed group"),
        ({"json": {"type": "string", "format": "nothing"}}, "nothing"),
        ({"json": {"properties": {"a": False}, "required": ["a"], "type": "object"}}, "[Uu]nsatisfiable"),
        ({"json": DEEP}, "recursion"),
        ({"json_object": True, "whitespace_pattern": "("}, "unclosed group"),
        ({"regex": "(a"}, "unclosed group"),
        ({"regex": "(?=a)b"}, "look-around"),
        ({"regex": r"(a)\1"}, "backreference"),
        ({"grammar": 'start: "a" nothing'}, "nothing"),
        ({"grammar": "garbage"}, "Expected"),
        ({"grammar": 'other: "a"'}, "start"),
        ({"grammar": "root ::= ("}, "Expected"),
        ({"regex": "a{100000}{100000}"}, "too many expressions"),
        ({"choice": ["a"] * 5000}, "max is 2000"),
    ],
    ids=str,
)
def test_these_are_refused_and_the_field_is_named(fields: dict[str, object], told: str) -> None:
    began = time.perf_counter()
    with pytest.raises(InvalidRequestError, match=told) as caught:
        check_structured_outputs(asking(**fields))
    assert caught.value.param == "structured_outputs"
    assert "\n" not in str(caught.value)
    assert time.perf_counter() - began < 5


# What takes much time to compile takes a second here, and is refused where it would take more.
@pytest.mark.parametrize(
    "fields",
    [
        {"regex": ".*" * (MAX_REGEX_LENGTH // 2 - 1) + "x"},
        {"regex": "((a{1,100}){1,100}){1,100}"},
        {"grammar": "start: X\nA: /.*/\nX: " + "A " * 4000},
        {"grammar": "start: X20\nX0: /.*/\n" + "".join(f"X{i + 1}: X{i} X{i}\n" for i in range(20))},
        {"choice": [f"x{i}" for i in range(7000)]},
        {"json": {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(1000)}}},
        {"json": {"allOf": [{"properties": {f"p{i}": {"type": "string"}}} for i in range(300)]}},
    ],
    ids=["stars", "repeats", "long grammar", "doubling grammar", "choices", "properties", "all of many"],
)
def test_what_is_built_to_take_long_does_not(fields: dict[str, object]) -> None:
    began = time.perf_counter()
    try:
        check_structured_outputs(asking(**fields))
    except InvalidRequestError as error:
        assert error.param == "structured_outputs"
    assert time.perf_counter() - began < 10  # on a busy machine


def test_gbnf_is_sent_as_lark() -> None:
    params = asking(grammar='root ::= "a" root | "b"')
    sent = check_structured_outputs(params)
    assert sent.structured_outputs is not None and sent.structured_outputs.grammar is not None
    assert "start:" in sent.structured_outputs.grammar and "::=" not in sent.structured_outputs.grammar
    assert params.structured_outputs is not None and "::=" in str(params.structured_outputs.grammar)


def test_the_event_loop_goes_on_while_a_grammar_is_compiled() -> None:
    may_end = threading.Event()

    def check(params: SamplingParams) -> SamplingParams:
        assert may_end.wait(60)
        return params

    async def run() -> None:
        compiler = GrammarCompiler(check, seconds=60)
        try:
            waiting = asyncio.create_task(compiler.check(asking(regex="a")))
            plain = SamplingParams()
            assert await compiler.check(plain) is plain
            assert not waiting.done()
            may_end.set()
            await waiting
        finally:
            may_end.set()
            compiler.close()

    asyncio.run(run())


def test_a_grammar_that_takes_too_long_is_refused() -> None:
    may_end = threading.Event()

    def check(params: SamplingParams) -> SamplingParams:
        assert may_end.wait(60)
        return params

    async def run() -> None:
        compiler = GrammarCompiler(check, seconds=0.05)
        try:
            with pytest.raises(InvalidRequestError, match="takes longer than"):
                await compiler.check(asking(regex="a"))
        finally:
            may_end.set()
            compiler.close()

    asyncio.run(run())
