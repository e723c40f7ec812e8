"""Answers of /v1/chat/completions."""

from collections.abc import Sequence

import msgspec

from ...text import Tokenizer
from ...text.answer.plan import AnswerPlan
from ...text.answer.reader import AnswerReader
from ..generation.chunks import Choice, Chunk, Usage
from ..requests.sampling import StreamOptions
from .events import EventFormat, finish_fields, json_text, json_value
from .logprobs import ChatLogprobs, LogprobWriter, PromptLogprobs, prompt_entries
from .messages import AnswerMessage, DeltaWriter, fold_message

_CALLS = "tool_calls"


class ChatChoice(msgspec.Struct):
    """One answer to a chat."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None = None  # the stop token or stop string that ended the answer


class ChatCompletion(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The answer as a whole."""

    id: str
    object: str
    created: int  # seconds since the epoch
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: PromptLogprobs | None = None  # one entry a prompt token, when they were asked for


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
        prompt_logprobs: int | None = None,
        plan: AnswerPlan,
    ) -> None:
        """`plan` says how the text of each choice is read."""
        super().__init__(answer_id, "chat.completion.chunk", created, model, options)
        self.prompt_logprobs = prompt_logprobs
        self._tokenizer = tokenizer
        self._id, self._model, self._created = answer_id, model, created
        self._num_choices = num_choices
        self._with_logprobs = with_logprobs
        self._plan = plan
        self._readers = [plan.reader() for _ in range(num_choices)] if plan.reads else []
        self._deltas = DeltaWriter(plan.tools)
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
        if self._readers:
            return self._read(self._readers[chunk.index], chunk, logprobs, usage)
        if chunk.finish_reason is None:
            return self._event(chunk, b'{"content":%b}' % json_text(chunk.text), logprobs, usage)
        text_event = b""
        if chunk.text:
            text_event = self._event(chunk, b'{"content":%b}' % json_text(chunk.text), logprobs, usage)
            logprobs = b"null"
        return text_event + self._end(chunk, chunk.finish_reason, logprobs, usage)

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        answer = ChatCompletion(
            id=self._id,
            object="chat.completion",
            created=self._created,
            model=self._model,
            choices=[self._choice(choice) for choice in choices],
            usage=usage,
            prompt_logprobs=prompt_entries(choices[0].prompt_logprobs, self._tokenizer),
        )
        return msgspec.json.encode(answer)

    def _choice(self, choice: Choice) -> ChatChoice:
        message, finish_reason = AnswerMessage(content=choice.text), choice.finish_reason
        if self._plan.reads:
            reader = self._plan.reader()
            message = fold_message([*reader.push(choice.text), *reader.finish()], self._plan.tools)
            finish_reason = _finish_reason(finish_reason, reader)
        return ChatChoice(
            choice.index,
            message,
            self._writer.chat(choice.logprobs) if self._with_logprobs else None,
            finish_reason,
            choice.stop_reason,
        )

    def _read(self, reader: AnswerReader, chunk: Chunk, logprobs: bytes, usage: Usage | None) -> bytes:
        """The events of a chunk whose text is more than content; text that is held back makes none."""
        ended = chunk.finish_reason is not None
        deltas = self._deltas.write(reader.push(chunk.text))
        if ended:
            deltas += self._deltas.write(reader.finish())
        if not deltas and chunk.logprobs and not ended:
            deltas = [b'{"content":""}']
        events = []
        for delta in deltas:
            events.append(self._event(chunk, delta, logprobs, usage))
            logprobs = b"null"
        if ended:
            events.append(self._end(chunk, _finish_reason(chunk.finish_reason, reader), logprobs, usage))
        return b"".join(events)

    def _event(self, chunk: Chunk, delta: bytes, logprobs: bytes, usage: Usage | None) -> bytes:
        return b'%b{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":null}%b' % (
            self._head,
            chunk.index,
            delta,
            logprobs,
            self.tail(usage),
        )

    def _end(self, chunk: Chunk, reason: str | None, logprobs: bytes, usage: Usage | None) -> bytes:
        return b'%b{"index":%d,"delta":{},"logprobs":%b,"finish_reason":%b}%b' % (
            self._head,
            chunk.index,
            logprobs,
            finish_fields(reason, chunk.stop_reason),
            self.tail(usage),
        )


def _finish_reason(reason: str | None, reader: AnswerReader) -> str | None:
    """A call that was cut is none: only an answer that ended by itself, with whole calls, ends with calls."""
    return _CALLS if reason == "stop" and reader.ends_with_calls else reason
