"""Server-sent events as bytes: the JSON of an event is spliced from parts that were encoded once."""

import msgspec

from ..generation.chunks import Usage
from ..requests.sampling import StreamOptions
from .errors import error_body

_DONE = b"data: [DONE]\n\n"
_END = b"}\n\n"

# Line ends to readers that split decoded text, as Python's splitlines does.
_LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))

_encode = msgspec.json.Encoder().encode


def json_text(text: str) -> bytes:
    """`text` as a JSON string that holds no line end of any kind."""
    encoded = _encode(text)
    return encoded if text.isascii() else _escape_line_ends(encoded)


def json_value(value: object) -> bytes:
    """Any struct or plain value as JSON that holds no line end of any kind."""
    return _escape_line_ends(_encode(value))


def _escape_line_ends(encoded: bytes) -> bytes:
    for raw, escaped in _LINE_ENDS:
        encoded = encoded.replace(raw, escaped)
    return encoded


def finish_fields(finish_reason: str | None, stop_reason: int | str | None) -> bytes:
    """The value of `finish_reason`, followed at the end of a choice by what stopped it."""
    if finish_reason is None:
        return b"null"
    return b'%b,"stop_reason":%b' % (json_text(finish_reason), json_value(stop_reason))


class EventFormat:
    """What all answers in events have in common: how an event begins and ends, and how a stream does."""

    media_type = "text/event-stream; charset=utf-8"

    def __init__(
        self, answer_id: str, kind: str, created: int, model: str, options: StreamOptions | None
    ) -> None:
        """`created` is in seconds since the epoch, `kind` the `object` of each event."""
        options = options or StreamOptions()
        self.counts_every_chunk = bool(options.continuous_usage_stats)
        self._with_usage = bool(options.include_usage)
        # An event up to its choices, and behind them: whoever asked for usage gets a field in every event.
        self._head = b'data: {"id":%b,"object":%b,"created":%d,"model":%b,"choices":[' % (
            json_text(answer_id),
            json_text(kind),
            created,
            json_text(model),
        )
        self._tail = b"]" + (b',"usage":null' if self._with_usage else b"") + _END

    def tail(self, usage: Usage | None) -> bytes:
        """The end of an event."""
        return self._tail if usage is None else self._counts(usage)

    def closing(self, usage: Usage) -> bytes:
        """The end of a stream: the usage, for those who asked, and the mark."""
        return self._head + self._counts(usage) + _DONE if self._with_usage else _DONE

    def failure(self, error: Exception) -> bytes | None:
        """The event of a failure behind the headers."""
        return b"data: " + error_body(error) + b"\n\n"

    def _counts(self, usage: Usage) -> bytes:
        return b'],"usage":' + json_value(usage) + _END
