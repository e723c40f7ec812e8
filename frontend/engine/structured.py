"""Grammars are compiled here before they are sent, so that one that cannot be is refused at the door."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from ...protocol.errors import InvalidRequestError
from ...protocol.sampling import SamplingParams
from ...protocol.structured import MAX_GRAMMAR_LENGTH, StructuredOutputsParams

if TYPE_CHECKING:
    from llguidance import LLMatcher

_COMPILE_SECONDS = 2.0
_WALK_BYTES = 32
_WALK_SECONDS = 0.3
_FIELD = "structured_outputs"


def check_structured_outputs(params: SamplingParams) -> SamplingParams:
    """The parameters as they are sent; they share all but the grammar, which is Lark's then.

    Raises InvalidRequestError for what cannot be compiled. A text that was compiled lately costs nothing.
    """
    wanted = params.structured_outputs
    if wanted is None:
        return params
    if wanted.grammar is not None and "::=" in wanted.grammar:
        wanted = _from_gbnf(wanted)
        params = msgspec.structs.replace(params, structured_outputs=wanted)
    problem = _compile(wanted.to_llguidance(), wanted.lexer_fuel)
    if problem:
        raise InvalidRequestError(f"{_FIELD} cannot be compiled: {problem}", param=_FIELD)
    return params


class GrammarCompiler:
    """Compiles on a thread of its own, for a program whose event loop must go on."""

    def __init__(
        self,
        check: Callable[[SamplingParams], SamplingParams] = check_structured_outputs,
        *,
        seconds: float = _COMPILE_SECONDS,
    ) -> None:
        self._check = check
        self._seconds = seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="octavo-grammar")

    async def check(self, params: SamplingParams) -> SamplingParams:
        """As `check_structured_outputs`. A grammar that takes too long is refused, too."""
        if params.structured_outputs is None:
            return params
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._seconds):
                return await loop.run_in_executor(self._thread, self._check, params)
        except TimeoutError:
            raise InvalidRequestError(
                f"{_FIELD} takes longer than {self._seconds:g} s to compile: make it smaller", param=_FIELD
            ) from None

    def close(self) -> None:
        """Let the thread end; a compilation that waits for it does not run."""
        self._thread.shutdown(wait=False, cancel_futures=True)


@lru_cache(maxsize=64)
def _compile(grammar: str, lexer_fuel: int) -> str:
    """What is wrong with a grammar in one line, empty when nothing is."""
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

    limits = LLParserLimits(initial_lexer_fuel=lexer_fuel)
    failed, messages = LLMatcher.validate_grammar_with_warnings(grammar, limits=limits)
    if failed:
        return _first_line(messages[0])
    if any("no tokenizer" in message for message in messages):
        return ""  # it names special tokens, which only the model's tokenizer has
    # The limits of compiling are met at the first mask. Bytes as tokens will do for that, and cost nothing.
    matcher = LLMatcher(LLTokenizer("byte"), grammar, log_level=0, limits=limits)
    _walk(matcher)
    return _first_line(matcher.get_error())


def _walk(matcher: "LLMatcher") -> None:
    """Draw a few bytes: a token is several, and its mask meets limits that are not met at the first byte."""
    end = time.monotonic() + _WALK_SECONDS
    for _ in range(_WALK_BYTES):
        if matcher.is_stopped() or time.monotonic() > end:  # an error stops it, too
            return
        allowed = int.from_bytes(matcher.compute_bitmask(), "little")
        if not allowed or not matcher.consume_token((allowed & -allowed).bit_length() - 1):
            return


def _first_line(message: str) -> str:
    lines = [line.strip() for line in message.splitlines()]
    told = [line for line in lines if line.startswith("error:")]
    return " ".join(line for line in (*lines[:1], *told[:1]) if line)[:500]


def _from_gbnf(wanted: StructuredOutputsParams) -> StructuredOutputsParams:
    from llguidance.gbnf_to_lark import any_to_lark

    try:
        lark = any_to_lark(wanted.grammar or "")
    except Exception as error:  # the converter raises plain Exception, whatever is wrong with the text
        problem = _first_line(str(error))
        raise InvalidRequestError(f"{_FIELD} cannot be compiled: {problem}", param=_FIELD) from error
    if len(lark) > 2 * MAX_GRAMMAR_LENGTH:
        raise InvalidRequestError(f"{_FIELD} is too long in Lark's syntax", param=_FIELD)
    return StructuredOutputsParams(grammar=lark)
