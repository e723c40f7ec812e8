"""What a request's choices gain adds up to: whole choices, and token counts."""

from collections.abc import Sequence

import msgspec

from ...engine.logprobs import TokenLogprobs
from ...engine.stream import ChoiceUpdate

# A piece of an answer: `index` is that of the choice in the answer. Only a choice's last chunk has a finish
# reason.
Chunk = ChoiceUpdate


class Choice:
    """The fold of a choice's chunks."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.prompt_logprobs: list[TokenLogprobs] | None = None  # where they were asked for
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def add(self, chunk: Chunk) -> None:
        """Take the choice's next chunk."""
        self._pieces.append(chunk.text)
        self.token_ids += chunk.token_ids
        if chunk.logprobs:
            self.logprobs += chunk.logprobs
        if chunk.finish_reason is not None:
            self.finish_reason = chunk.finish_reason
            self.stop_reason = chunk.stop_reason


class Fold:
    """Reads chunks into whole choices."""

    paused = False

    def __init__(self, num_choices: int) -> None:
        self.choices = [Choice(index) for index in range(num_choices)]

    async def drain(self) -> None:
        """It is never behind."""

    def take(self, chunks: Sequence[Chunk]) -> None:
        """Take the next chunks."""
        for chunk in chunks:
            self.choices[chunk.index].add(chunk)


class PromptDetails(msgspec.Struct):
    """Where prompt tokens came from."""

    cached_tokens: int


class Usage(msgspec.Struct):
    """Token counts of an answer, in OpenAI's form."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
