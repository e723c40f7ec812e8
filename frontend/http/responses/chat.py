"""Answers of /v1/chat/completions."""

from collections.abc import Sequence

import msgspec

from ...text import Tokenizer
from ..generation.chunks import Choice, Chunk, Usage
from ..requests.sampling import StreamOptions
from .events import EventFormat, finish_fields, json_text, json_value
from .logprobs import ChatLogprobs, LogprobWriter


class AnswerMessage(msgspec.Struct, kw_only=True):
    """What the model says."""

    role: str = "assistant"
    content: str
    refusal: None = None


class ChatChoice(msgspec.Struct):
    """One answer to a chat."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None = None  # the stop token or stop string that ended the answer


class ChatCompletion(msgspec.Struct, kw_only=True):
    """The answer as a whole."""

    id: str
    object: str = "chat.completion"
    created: int  # seconds since the epoch
    model: str
    choices: list[ChatChoice]
    usage: Usage


class ChatFormat(EventFormat):
    """Writes the answer to one request, whole or as events.

    A streamed choice begins with its role and ends with a chunk of its own for the finish reason.
    """

    def __init__(
        self,
        answer_id: str,
        model: str,
        created: int,
        tokenizer: Tokenizer,
        *,
        num_choices: int = 1,
        options: StreamOptions | None = None,
        with_logprobs: bool = False,
    ) -> None:
        super().__init__(answer_id, "chat.completion.chunk", created, model, options)
        self._id, self._model, self._created = answer_id, model, created
        self._num_choices = num_choices
        self._with_logprobs = with_logprobs
        # Entries of a chat have no offsets, so that all choices can share a writer.
        self._writer = LogprobWriter(tokenizer, skip_special_tokens=True)

    def opening(self) -> bytes:
        delta = b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
        return b"".join(
            b'%b{"index":%d,%b%b' % (self._head, index, delta, self.tail(None))
            for index in range(self._num_choices)
        )

    def chunk(self, chunk: Chunk, usage: Usage | None) -> bytes:
        logprobs = json_value(self._writer.chat(chunk.logprobs)) if chunk.logprobs else b"null"
        if chunk.finish_reason is None:
            return self._text_event(chunk, logprobs, usage)
        text_event = b""
        if chunk.text:
            text_event, logprobs = self._text_event(chunk, logprobs, usage), b"null"
        return b'%b%b{"index":%d,"delta":{},"logprobs":%b,"finish_reason":%b}%b' % (
            text_event,
            self._head,
            chunk.index,
            logprobs,
            finish_fields(chunk),
            self.tail(usage),
        )

    def _text_event(self, chunk: Chunk, logprobs: bytes, usage: Usage | None) -> bytes:
        return b'%b{"index":%d,"delta":{"content":%b},"logprobs":%b,"finish_reason":null}%b' % (
            self._head,
            chunk.index,
            json_text(chunk.text),
            logprobs,
            self.tail(usage),
        )

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        answer = ChatCompletion(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[
                ChatChoice(
                    choice.index,
                    AnswerMessage(content=choice.text),
                    self._writer.chat(choice.logprobs) if self._with_logprobs else None,
                    choice.finish_reason,
                    choice.stop_reason,
                )
                for choice in choices
            ],
            usage=usage,
        )
        return msgspec.json.encode(answer)
