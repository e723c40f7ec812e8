"""What a stream gained, as the outputs that the Python API returns."""

from collections.abc import Sequence

from ...protocol.errors import OctavoError
from ...protocol.sampling import RequestOutputKind
from ..text import Tokenizer
from .logprobs import TokenLogprobs
from .outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput
from .stream import ChoiceUpdate, Stream


class OutputBuilder:
    """Turns the updates of one request into `RequestOutput`s of the kind that was asked for."""

    def __init__(
        self, stream: Stream, request_id: str, prompt: str | None, tokenizer: Tokenizer | None
    ) -> None:
        self.stream = stream
        self.request_id = request_id
        self._prompt = prompt
        self._tokenizer = tokenizer
        params = stream.submit.params
        self._kind = params.output_kind
        self._metrics = RequestMetrics(stream.arrival)  # one for all outputs, filled as the request goes on
        self._prompt_logprobs: list[dict[int, Logprob] | None] | None = None
        self._whole = [CompletionOutput(index, "", []) for index in range(params.n)]
        if params.logprobs is not None:
            for output in self._whole:
                output.logprobs, output.cumulative_logprob = [], 0.0

    @property
    def waits(self) -> bool:
        """Whether there is nothing to show before the request has ended, whatever it gains."""
        return self._kind is RequestOutputKind.FINAL_ONLY and not self.stream.ended

    def take(self) -> RequestOutput | None:
        """Look at the stream: the output to show now, None when there is none to show yet."""
        if self.waits:
            return None
        updates, error = self.stream.take(), self.stream.error
        return self.add(updates) if error is None else self.failed(updates, error)

    def add(self, updates: Sequence[ChoiceUpdate]) -> RequestOutput | None:
        """Take updates; returns the output to show now, None when there is none to show yet."""
        if self._kind is RequestOutputKind.DELTA:
            return self._output([self._completion(update) for update in updates]) if updates else None
        for update in updates:
            self._extend(self._whole[update.index], update)
        if self.waits:
            return None
        return self._output([_copy(output) for output in self._whole])

    def failed(self, updates: Sequence[ChoiceUpdate], error: OctavoError) -> RequestOutput:
        """The output of a request that ended with an error: what came before it, and how it ended.

        Of the kind DELTA it holds the choices that had not ended, and those that end with these updates.
        """
        reason = {"RequestTimeoutError": "timeout", "RequestAbortedError": "abort"}.get(error.kind, "error")
        for update in updates:
            self._extend(self._whole[update.index], update)
        ended = {update.index for update in updates if update.finish_reason is not None}
        shown = []
        for output, choice in zip(self._whole, self.stream.choices, strict=True):
            if choice.ended and output.index not in ended and self._kind is RequestOutputKind.DELTA:
                continue  # shown when it ended
            if not choice.ended:
                output.finish_reason = reason
            shown.append(_copy(output))
        last = self._output(shown)
        last.error = str(error)
        return last

    def _completion(self, update: ChoiceUpdate) -> CompletionOutput:
        part = CompletionOutput(
            update.index,
            update.text,
            update.token_ids,
            finish_reason=update.finish_reason,
            stop_reason=update.stop_reason,
        )
        if update.logprobs is not None:
            part.logprobs = [self._logprobs(entry) for entry in update.logprobs]
            part.cumulative_logprob = sum(entry.logprob for entry in update.logprobs)
        return part

    def _extend(self, whole: CompletionOutput, update: ChoiceUpdate) -> None:
        whole.text += update.text
        assert isinstance(whole.token_ids, list)
        whole.token_ids += update.token_ids
        if whole.logprobs is not None and update.logprobs:
            whole.logprobs += [self._logprobs(entry) for entry in update.logprobs]
            gained = sum(entry.logprob for entry in update.logprobs)
            whole.cumulative_logprob = (whole.cumulative_logprob or 0.0) + gained
        whole.finish_reason, whole.stop_reason = update.finish_reason, update.stop_reason

    def _logprobs(self, entry: TokenLogprobs) -> dict[int, Logprob]:
        shown = {entry.token_id: Logprob(entry.logprob, entry.rank, self._token_text(entry.token_id))}
        for rank, (token, value) in enumerate(entry.top, start=1):
            shown.setdefault(token, Logprob(value, rank, self._token_text(token)))
        return shown

    def _of_prompt(self) -> list[dict[int, Logprob] | None] | None:
        """One entry a prompt token, None for the first; the same list for all outputs once it is complete."""
        told = self.stream.prompt_logprobs
        if (
            told is not None
            and self._prompt_logprobs is None
            and len(told) == len(self.stream.prompt_ids) - 1
        ):
            self._prompt_logprobs = [None, *(self._logprobs(entry) for entry in told)]
        return self._prompt_logprobs

    def _token_text(self, token: int) -> str | None:
        return None if self._tokenizer is None else self._tokenizer.token_text(token)

    def _output(self, outputs: list[CompletionOutput]) -> RequestOutput:
        stream, metrics = self.stream, self._metrics
        if metrics.first_token_time is None:
            metrics.first_token_time = stream.first_token_at
            metrics.time_in_queue, metrics.prefill_time = stream.queued_ms / 1e3, stream.prefill_ms / 1e3
        metrics.finished_time = stream.finished_at
        return RequestOutput(
            request_id=self.request_id,
            prompt=self._prompt,
            prompt_token_ids=stream.prompt_ids,  # one list for all outputs: it may be long
            outputs=outputs,
            finished=stream.ended,
            metrics=metrics,
            num_cached_tokens=stream.num_cached,
            prompt_logprobs=self._of_prompt(),
        )


def _copy(output: CompletionOutput) -> CompletionOutput:
    """A snapshot that later tokens do not change."""
    return CompletionOutput(
        output.index,
        output.text,
        list(output.token_ids),
        output.cumulative_logprob,
        None if output.logprobs is None else list(output.logprobs),
        output.finish_reason,
        output.stop_reason,
    )
