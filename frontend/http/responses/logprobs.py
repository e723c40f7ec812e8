"""Log-probabilities in OpenAI's two forms."""

import math
from codecs import getincrementaldecoder
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from ...engine.logprobs import TokenLogprobs
from ...text import Tokenizer

_LEAST = -9999.0  # stands for minus infinity, which JSON does not have


class TopLogprob(msgspec.Struct):
    """An alternative to a token of a chat."""

    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(msgspec.Struct):
    """A token of a chat."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    """Log-probabilities of a chat's choice, one entry a token."""

    content: list[ChatTokenLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct):
    """Log-probabilities of a completion's choice: lists with one entry a token."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class PromptLogprob(msgspec.Struct):
    """A token at a position of the prompt, in vLLM's form."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs: TypeAlias = list[dict[int, PromptLogprob] | None]


def prompt_entries(told: Sequence[TokenLogprobs] | None, tokenizer: Tokenizer) -> PromptLogprobs | None:
    """For each prompt token the entry of it and of the likeliest ones, by token id; None for the first."""
    if told is None:
        return None
    entries: PromptLogprobs = []
    for token in told:
        if math.isnan(token.logprob):
            entries.append(None)
            continue
        found = {token.token_id: PromptLogprob(_finite(token.logprob), token.rank, "")}
        for rank, (other, value) in enumerate(token.top, start=1):
            found.setdefault(other, PromptLogprob(_finite(value), rank, ""))
        for other, entry in found.items():
            entry.decoded_token = tokenizer.token_text(other)
        entries.append(found)
    return entries


class LogprobWriter:
    """Writes the tokens of one choice, in order; in pieces or at once gives the same entries."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool, start: int = 0) -> None:
        """`start` is the length of the text that stands before the first token."""
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._offset = start

    def chat(self, tokens: Iterable[TokenLogprobs]) -> ChatLogprobs:
        """Entries of /v1/chat/completions."""
        return ChatLogprobs([self._chat_token(token) for token in tokens])

    def completion(self, tokens: Sequence[TokenLogprobs]) -> CompletionLogprobs:
        """Entries of /v1/completions; the chosen token is always among the alternatives."""
        return CompletionLogprobs(
            text_offset=[self._next_offset(token.token_id) for token in tokens],
            token_logprobs=[
                None if math.isnan(token.logprob) else _finite(token.logprob) for token in tokens
            ],
            tokens=[self._text(token.token_id) for token in tokens],
            top_logprobs=[
                None
                if math.isnan(token.logprob)
                else {
                    self._text(t): _finite(value)
                    for t, value in ((token.token_id, token.logprob), *token.top)
                }
                for token in tokens
            ],
        )

    def _chat_token(self, token: TokenLogprobs) -> ChatTokenLogprob:
        top = [
            TopLogprob(self._text(t), _finite(value), list(self._tokenizer.token_bytes(t)))
            for t, value in token.top
        ]
        data = list(self._tokenizer.token_bytes(token.token_id))
        return ChatTokenLogprob(self._text(token.token_id), _finite(token.logprob), data, top)

    def _text(self, token_id: int) -> str:
        """The token's text; one that is a part of a character shows its bytes, as OpenAI writes them."""
        data = self._tokenizer.token_bytes(token_id)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def _next_offset(self, token_id: int) -> int:
        offset = self._offset
        if token_id not in self._hidden:
            self._offset += len(self._decoder.decode(self._tokenizer.token_bytes(token_id)))
        return offset


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST)
