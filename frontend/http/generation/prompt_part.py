"""The prompt as a part of an answer: echoed, with or without log-probabilities, or all there is."""

from collections.abc import Sequence

from ...engine.logprobs import UNKNOWN, TokenLogprobs
from ...engine.stream import Stream
from .chunks import Chunk
from .job import Job


class PromptPart:
    """What the prompt adds to the chunks of a job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._told = False  # the echo with log-probabilities was handed out

    def opening(self) -> list[Chunk]:
        """What the choices begin with before the model has said anything."""
        return [] if self._job.echo_logprobs is not None else self._echoes(None)

    def add_to(self, chunks: list[Chunk], stream: Stream) -> list[Chunk]:
        """The chunks of the job's choices, behind the echo that has to wait for the model."""
        if self._job.only_prompt:
            chunks = [_emptied(chunk) for chunk in chunks if chunk.finish_reason is not None]
        if self._job.echo_logprobs is None or self._told or not chunks:
            return chunks
        self._told = True
        return [*self._echoes(told_prompt(stream, self._job.echo_logprobs)), *chunks]

    def _echoes(self, logprobs: Sequence[TokenLogprobs] | None) -> list[Chunk]:
        job = self._job
        return [Chunk(choice, job.echo, (), logprobs) for choice in range(job.params.n if job.echo else 0)]


def told_prompt(stream: Stream, num_top: int) -> list[TokenLogprobs]:
    """An entry for each prompt token, with at most `num_top` alternatives; that of the first is UNKNOWN."""
    first = TokenLogprobs(stream.prompt_ids[0], UNKNOWN, 0, ())
    told = stream.prompt_logprobs or []
    return [first, *(TokenLogprobs(t.token_id, t.logprob, t.rank, t.top[:num_top]) for t in told)]


def _emptied(chunk: Chunk) -> Chunk:
    """The end of a choice that was to have no token: the one that was drawn is nobody's."""
    return Chunk(chunk.index, "", (), None, "length")
