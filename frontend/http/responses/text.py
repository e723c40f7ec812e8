"""Answers of /generate: `{"text": [...]}`, or the text itself as it comes."""

from collections.abc import Sequence

import msgspec

from ..generation.chunks import Choice, Chunk, Usage


class Texts(msgspec.Struct):
    """The answer as a whole: the generated texts, n for each prompt."""

    text: list[str]


class TextFormat:
    """Plain text has no place for an error: a stream that fails is cut off without its end."""

    media_type = "text/plain; charset=utf-8"
    counts_every_chunk = False
    prompt_logprobs: int | None = None

    def opening(self) -> bytes:
        return b""

    def chunk(self, chunk: Chunk, usage: Usage | None) -> bytes:
        return chunk.text.encode("utf-8")

    def closing(self, usage: Usage) -> bytes:
        return b""

    def failure(self, error: Exception) -> bytes | None:
        return None

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        return msgspec.json.encode(Texts([choice.text for choice in choices]))
