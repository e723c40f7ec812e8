"""From what a request asks for to a matcher, on a thread: compiling takes up to a second."""

from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from ...protocol.structured import StructuredOutputsParams

_NUM_KEPT = 64  # grammars that requests have in common, such as the choices of one


class GuideError(Exception):
    """A row cannot be guided; the message is one line."""


class GrammarCompiler:
    """Makes matchers for one model. Its tokenizer is read for the first of them."""

    def __init__(self, tokenizer_path: str, vocab_size: int, eos_token_ids: tuple[int, ...]) -> None:
        self._path = tokenizer_path
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        self._tokenizer: LLTokenizer | None = None
        self._kept: OrderedDict[tuple[str, int], LLMatcher] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammars")

    def start(self, wanted: StructuredOutputsParams, output: list[int]) -> Future[LLMatcher]:
        """A matcher that has read `output`, tokens that were drawn before; or a GuideError."""
        return self._thread.submit(self._compile, wanted, output)

    def _compile(self, wanted: StructuredOutputsParams, output: list[int]) -> LLMatcher:
        matcher = self._fresh(wanted.to_llguidance(), wanted.lexer_fuel)
        if output and not matcher.consume_tokens(output):
            raise GuideError(f"the output so far does not obey the grammar: {_line(matcher)}")
        return matcher

    def _fresh(self, grammar: str, lexer_fuel: int) -> LLMatcher:
        key = grammar, lexer_fuel
        kept = self._kept.get(key)
        if kept is None:
            limits = LLParserLimits(initial_lexer_fuel=lexer_fuel)
            kept = LLMatcher(self._load_tokenizer(), grammar, log_level=0, limits=limits)
            if kept.is_error():
                raise GuideError(f"the grammar cannot be compiled: {_line(kept)}")
            self._kept[key] = kept
            if len(self._kept) > _NUM_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return kept.deep_copy()

    def _load_tokenizer(self) -> LLTokenizer:
        if self._tokenizer is None:
            if not self._path:
                raise GuideError("structured outputs need a tokenizer, and the model has none")
            try:
                text = Path(self._path).read_text(encoding="utf-8")
                eos = list(self._eos_token_ids)
                self._tokenizer = LLTokenizer(text, n_vocab=self._vocab_size, eos_token=eos)
            except (OSError, ValueError) as error:
                raise GuideError(
                    f"structured outputs cannot read the model's tokenizer: {str(error).splitlines()[0]}"
                ) from error
        return self._tokenizer


def _line(matcher: LLMatcher) -> str:
    return (matcher.get_error().splitlines() or ["no reason given"])[0]
