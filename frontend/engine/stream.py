"""A request as its client sees it: choices that gain tokens and text until they end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...protocol.errors import OctavoError, RequestFailedError
from ...protocol.ids import FinishReason
from ...protocol.requests import Submit
from ...protocol.sampling import SamplingParams
from ..text import TextStream, Tokenizer
from .logprobs import TokenLogprobs

_NONE, _STOP = FinishReason.NONE, FinishReason.STOP


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
        "_watched",
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
        self.finish = _NONE
        self.stop_reason: int | str | None = None
        self._fresh = ""  # text that nobody took yet
        self._taken = 0  # tokens that were taken
        self._include_stop = params.include_stop_str_in_output
        self._watched = bool(params.stop)

    @property
    def ended(self) -> bool:
        return self.finish is not _NONE

    def add(
        self, tokens: list[int], finish: FinishReason, stop_token: int, logprobs: list[TokenLogprobs] | None
    ) -> bool:
        """Take new tokens; True when a stop string among them ended the choice before the scheduler did."""
        self.token_ids += tokens
        if self.logprobs is not None and logprobs is not None:
            self.logprobs += logprobs
        text = self.text
        if text is not None:
            # eos or a stop token is no text
            self._fresh += text.push(tokens if finish is not _STOP or self._include_stop else tokens[:-1])
            if self._watched and text.stopped is not None:
                self._stop(text)
                return finish is _NONE
        if finish is not _NONE:
            self._end(finish, stop_token if stop_token >= 0 else None)
        return False

    def take(self) -> ChoiceUpdate | None:
        """What is new since the last call, None when nothing is. After the end the end is repeated."""
        taken, num_tokens = self._taken, len(self.token_ids)
        if taken == num_tokens and not self._fresh and self.finish is _NONE:
            return None
        text, self._fresh = self._fresh, ""
        self._taken = num_tokens
        return ChoiceUpdate(
            self.index,
            text,
            self.token_ids[taken:],
            None if self.logprobs is None else self.logprobs[taken:],
            self.finish.public,
            self.stop_reason,
        )

    def _end(self, finish: FinishReason, stop_reason: int | None) -> None:
        """The scheduler ended the choice; text that was held back comes out."""
        self.finish, self.stop_reason = finish, stop_reason
        if self.text is not None:
            self._fresh += self.text.finish()
            if self._watched and self.text.stopped is not None:
                self._stop(self.text)

    def _stop(self, text: TextStream) -> None:
        """A stop string is complete: what came behind it never was."""
        self.finish, self.stop_reason = _STOP, text.stopped
        del self.token_ids[text.num_tokens_at_stop :]
        if self.logprobs is not None:
            del self.logprobs[text.num_tokens_at_stop :]


class Stream:
    """One request and its choices.

    Attributes:
        submit: the message that started it, or took it up again last. number, attempt: of that message.
        error: why the request failed as a whole, None while it did not. ended: nothing more will come.
        accepted: the scheduler has it. num_cached, queued_ms, prefill_ms: as the scheduler reported them
        with the first token. prompt_logprobs: those of its tokens from the second on, complete with the first
        output token; None when nobody asked. Times are of `time.monotonic`. on_change: called when there is
        something to take, if somebody wants that.
    """

    __slots__ = (
        "_unreported",
        "accepted",
        "arrival",
        "attempt",
        "choices",
        "ended",
        "error",
        "finished_at",
        "first_token_at",
        "num_cached",
        "number",
        "on_change",
        "prefill_ms",
        "prompt_ids",
        "prompt_logprobs",
        "queued_ms",
        "submit",
    )

    def __init__(
        self, submit: Submit, prompt_ids: list[int], tokenizer: Tokenizer | None, *, arrival: float
    ) -> None:
        self.submit = submit
        self.number = submit.request
        self.attempt = submit.attempt
        self.prompt_ids = prompt_ids
        self.arrival = arrival
        self.accepted = False
        self.ended = False
        self.error: OctavoError | None = None
        self.num_cached = 0
        self.queued_ms = 0.0
        self.prefill_ms = 0.0
        self.first_token_at: float | None = None
        self.finished_at: float | None = None
        self.on_change: Callable[[], None] | None = None
        params = submit.params
        self.prompt_logprobs: list[TokenLogprobs] | None = None if params.prompt_logprobs is None else []
        self.choices = [
            Choice(index, _text(tokenizer, prompt_ids, params), params) for index in range(params.n)
        ]
        self._unreported = list(self.choices)  # whose end nobody took yet

    @property
    def name(self) -> str:
        """What people call the request."""
        return self.submit.name

    def resubmitted(self, submit: Submit) -> None:
        """The request goes on as `submit`."""
        self.submit, self.attempt = submit, submit.attempt

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

        Tokens the choice already has are skipped. Raises RequestFailedError for a gap: a token was lost.
        """
        choice = self.choices[index]
        if choice.finish is not _NONE:
            return False
        known = len(choice.token_ids)
        if start != known:
            if start > known:
                raise RequestFailedError(f"{self.name}: output tokens {known} to {start - 1} were lost")
            tokens = tokens[known - start :]
            logprobs = logprobs[known - start :] if logprobs is not None else None
        stopped = choice.add(tokens, finish, stop_token, logprobs)
        if choice.finish is not _NONE:
            self.ended = all(choice.finish is not _NONE for choice in self.choices)
        return stopped

    def add_prompt(self, start: int, logprobs: list[TokenLogprobs]) -> None:
        """Take log-probabilities of prompt tokens from position `start` on, some of them perhaps again.

        Raises RequestFailedError for a gap.
        """
        if self.prompt_logprobs is None:
            return
        next_position = len(self.prompt_logprobs) + 1  # nothing precedes the first token
        if start > next_position:
            raise RequestFailedError(f"{self.name}: prompt logprobs {next_position} to {start - 1} were lost")
        self.prompt_logprobs += logprobs[next_position - start :]

    def fail(self, error: OctavoError) -> None:
        """The request ends with an error; what was delivered stays."""
        if not self.ended:
            self.error, self.ended = error, True

    def take(self) -> list[ChoiceUpdate]:
        """What each choice gained since the last call, in the order of the choices."""
        updates = [update for choice in self._unreported if (update := choice.take()) is not None]
        for update in updates:
            if update.finish_reason is not None:
                self._unreported.remove(self.choices[update.index])
        return updates


def _text(
    tokenizer: Tokenizer | None, prompt_ids: Sequence[int], params: SamplingParams
) -> TextStream | None:
    if tokenizer is None or not params.detokenize:
        return None
    return TextStream(tokenizer, prompt_ids, params)
