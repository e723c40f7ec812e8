"""A request as its client sees it: choices that gain tokens and text until they end."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...protocol.errors import EngineDeadError, OctavoError
from ...protocol.ids import FinishReason
from ...protocol.requests import Submit
from ...protocol.sampling import SamplingParams
from ..text import TextStream, Tokenizer
from .logprobs import TokenLogprobs


@dataclass(slots=True)
class ChoiceUpdate:
    """What one choice gained since it was last looked at."""

    index: int
    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprobs] | None  # one a token, None when nobody asked
    finish_reason: str | None = None  # the choice has ended
    stop_reason: int | str | None = None


class Choice:
    """One of the n answers."""

    __slots__ = (
        "_fresh",
        "_include_stop",
        "_taken",
        "finish",
        "index",
        "logprobs",
        "stop_reason",
        "text",
        "token_ids",
    )

    def __init__(self, index: int, text: TextStream | None, params: SamplingParams) -> None:
        self.index = index
        self.text = text
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprobs] | None = None if params.logprobs is None else []
        self.finish: FinishReason = FinishReason.NONE
        self.stop_reason: int | str | None = None
        self._fresh: list[str] = []  # pieces of text that nobody took yet
        self._taken = 0  # tokens that were taken
        self._include_stop = params.include_stop_str_in_output

    def add(
        self, tokens: list[int], finish: FinishReason, stop_token: int, logprobs: list[TokenLogprobs] | None
    ) -> bool:
        """Take new tokens; True when a stop string among them ended the choice before the scheduler did."""
        self.token_ids += tokens
        if self.logprobs is not None and logprobs is not None:
            self.logprobs += logprobs
        found = self.text is not None and self._add_text(self.text, tokens, finish)
        if finish is FinishReason.NONE or found:
            return found and finish is FinishReason.NONE
        self.end(finish, stop_token if stop_token >= 0 else None)
        return False

    def end(self, finish: FinishReason, stop_reason: int | str | None = None) -> None:
        """The choice has ended; text that was held back comes out."""
        if self.text is not None:
            if held := self.text.finish():
                self._fresh.append(held)
            if self.text.stopped is not None:  # in what was held
                finish, stop_reason = FinishReason.STOP, self.text.stopped
        self.finish, self.stop_reason = finish, stop_reason

    @property
    def ended(self) -> bool:
        return self.finish is not FinishReason.NONE

    def take(self) -> ChoiceUpdate | None:
        """What is new since the last call, None when nothing is. After the end the end is repeated."""
        tokens = self.token_ids[self._taken :]
        if not tokens and not self._fresh and not self.ended:
            return None
        logprobs = None if self.logprobs is None else self.logprobs[self._taken :]
        text = "".join(self._fresh)
        self._taken, self._fresh = len(self.token_ids), []
        return ChoiceUpdate(self.index, text, tokens, logprobs, self.finish.public, self.stop_reason)

    def _add_text(self, text: TextStream, tokens: list[int], finish: FinishReason) -> bool:
        """Detokenize; True when a stop string was completed."""
        if finish is FinishReason.STOP and not self._include_stop:
            tokens = tokens[:-1]  # eos or a stop token is no text
        piece = text.push(tokens)
        if piece:
            self._fresh.append(piece)
        if text.stopped is None:
            return False
        kept = text.num_tokens_at_stop or 0
        self._taken = min(self._taken, kept)
        del self.token_ids[kept:]
        if self.logprobs is not None:
            del self.logprobs[kept:]
        self.finish, self.stop_reason = FinishReason.STOP, text.stopped
        return True


class Stream:
    """One request and its choices.

    Attributes:
        submit: the message that started it, or took it up again last. error: why it failed as a whole, None
        while it did not. accepted: the scheduler has it. num_cached, queued_ms, prefill_ms: as the scheduler
        reported them with the first token.
    """

    def __init__(
        self, submit: Submit, prompt_ids: list[int], tokenizer: Tokenizer | None, *, arrival: float
    ) -> None:
        self.submit = submit
        self.prompt_ids = prompt_ids
        self.arrival = arrival
        self.accepted = False
        self.error: OctavoError | None = None
        self.num_cached = 0
        self.queued_ms = 0.0
        self.prefill_ms = 0.0
        self.first_token_at: float | None = None
        self.finished_at: float | None = None
        params = submit.params
        self.choices = [
            Choice(index, _text(tokenizer, prompt_ids, params), params) for index in range(params.n)
        ]
        self._running = params.n  # choices
        self._reported: set[int] = set()

    @property
    def number(self) -> int:
        """What the request is called on the wire."""
        return self.submit.request

    @property
    def attempt(self) -> int:
        """How often it was submitted again."""
        return self.submit.attempt

    @property
    def name(self) -> str:
        """What people call the request."""
        return self.submit.name

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.error is not None or not self._running

    def add(
        self,
        index: int,
        start: int,
        tokens: list[int],
        finish: FinishReason,
        stop_token: int,
        logprobs: list[TokenLogprobs] | None,
    ) -> bool:
        """Take a choice's tokens from output index `start` on; True when a stop string ended it.

        Tokens the choice already has are skipped. Raises EngineDeadError for a gap: a token was lost.
        """
        choice = self.choices[index]
        if choice.ended:
            return False
        known = len(choice.token_ids)
        if start > known:
            raise EngineDeadError(f"tokens {known} to {start} of request {self.name} were lost")
        if start < known:
            tokens = tokens[known - start :]
            logprobs = logprobs[known - start :] if logprobs is not None else None
        stopped = choice.add(tokens, finish, stop_token, logprobs)
        if choice.ended:
            self._running -= 1
        return stopped

    def fail(self, error: OctavoError) -> None:
        """The request ends with an error; what was delivered stays."""
        if not self.ended:
            self.error = error

    def take(self) -> list[ChoiceUpdate]:
        """What each choice gained since the last call, in the order of the choices."""
        updates = []
        for choice in self.choices:
            if choice.index in self._reported:
                continue
            update = choice.take()
            if update is not None:
                updates.append(update)
                if update.finish_reason is not None:
                    self._reported.add(choice.index)
        return updates


def _text(
    tokenizer: Tokenizer | None, prompt_ids: Sequence[int], params: SamplingParams
) -> TextStream | None:
    if tokenizer is None or not params.detokenize:
        return None
    return TextStream(tokenizer, prompt_ids, params)
