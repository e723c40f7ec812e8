"""What a kind of answer must be able to do: become frames, and become one body."""

from collections.abc import Sequence
from typing import Protocol

from .chunks import Choice, Chunk, Usage


class Format(Protocol):
    """The form of one request's answer."""

    media_type: str  # of the stream
    counts_every_chunk: bool  # whether chunks carry the usage so far
    prompt_logprobs: int | None  # alternatives beside each prompt token of a whole answer; None: no such part

    def opening(self) -> bytes:
        """What follows the headers of a stream at once."""

    def chunk(self, chunk: Chunk, usage: Usage | None) -> bytes:
        """The frames of a chunk; `usage` is given when `counts_every_chunk`."""

    def closing(self, usage: Usage) -> bytes:
        """The end of a stream."""

    def failure(self, error: Exception) -> bytes | None:
        """The end of a stream that failed; None when only a broken connection can tell."""

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The JSON body of the answer as a whole."""
