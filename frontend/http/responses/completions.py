"""Answers of /v1/completions."""

from collections.abc import Sequence

import msgspec

from ...engine.logprobs import TokenLogprobs
from ...text import Tokenizer
from ..generation.chunks import Choice, Chunk, Usage
from ..requests.sampling import StreamOptions
from .events import EventFormat, finish_fields, json_text, json_value
from .logprobs import CompletionLogprobs, LogprobWriter, PromptLogprobs, prompt_entries


class CompletionChoice(msgspec.Struct, omit_defaults=True):
    """One text that goes on from a prompt."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None  # the stop token or stop string that ended the text
    token_ids: list[int] | None = None  # of the output, when they were asked for
    prompt_logprobs: PromptLogprobs | None = None  # one entry a prompt token, when they were asked for


class Completion(msgspec.Struct, kw_only=True):
    """The answer as a whole."""

    id: str
    object: str = "text_completion"
    created: int  # seconds since the epoch
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class CompletionFormat(EventFormat):
    """Writes the answer to one request, whole or as events."""

    def __init__(
        self,
        answer_id: str,
        model: str,
        created: int,
        tokenizer: Tokenizer,
        *,
        options: StreamOptions | None = None,
        skip_special_tokens: bool = True,
        with_logprobs: bool = False,
        with_token_ids: bool = False,
        prompt_logprobs: int | None = None,
    ) -> None:
        super().__init__(answer_id, "text_completion", created, model, options)
        self.prompt_logprobs = prompt_logprobs
        self._id, self._model, self._created = answer_id, model, created
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._with_logprobs = with_logprobs
        self._with_token_ids = with_token_ids
        self._writers: dict[int, LogprobWriter] = {}
        self._plain = b',"logprobs":null,"finish_reason":null}' + self.tail(None)

    def opening(self) -> bytes:
        return b""

    def chunk(self, chunk: Chunk, usage: Usage | None) -> bytes:
        start = b'%b{"index":%d,"text":%b' % (self._head, chunk.index, json_text(chunk.text))
        if chunk.finish_reason is None and not chunk.logprobs and usage is None and not self._with_token_ids:
            return start + self._plain
        if self._with_token_ids:
            start = b'%b,"token_ids":%b' % (start, json_value(list(chunk.token_ids)))
        return b'%b,"logprobs":%b,"finish_reason":%b}%b' % (
            start,
            json_value(self._logprobs(chunk.index, chunk.logprobs)) if chunk.logprobs else b"null",
            finish_fields(chunk.finish_reason, chunk.stop_reason),
            self.tail(usage),
        )

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        answer = Completion(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[
                CompletionChoice(
                    choice.index,
                    choice.text,
                    self._logprobs(choice.index, choice.logprobs) if self._with_logprobs else None,
                    choice.finish_reason,
                    choice.stop_reason,
                    choice.token_ids if self._with_token_ids else None,
                    prompt_entries(choice.prompt_logprobs, self._tokenizer),
                )
                for choice in choices
            ],
            usage=usage,
        )
        return msgspec.json.encode(answer)

    def _logprobs(self, index: int, tokens: Sequence[TokenLogprobs]) -> CompletionLogprobs:
        writer = self._writers.get(index)
        if writer is None:
            writer = LogprobWriter(self._tokenizer, skip_special_tokens=self._skip_special_tokens)
            self._writers[index] = writer
        return writer.completion(tokens)
