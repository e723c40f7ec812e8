"""One streamed completion over a plain connection: the client must not be what is measured."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_LIMIT = 1 << 20  # bytes of the longest line
_TOKENS = b'"usage":{'


@dataclass
class Answer:
    """When the frames of one answer came, in seconds of `time.perf_counter`."""

    sent: float
    frames: list[float] = field(default_factory=list)  # those that hold text
    ended: float = 0.0
    num_tokens: int = 0  # as the server counted them
    error: str = ""

    @property
    def first(self) -> float:
        """Seconds to the first frame."""
        return self.frames[0] - self.sent

    @property
    def gaps(self) -> list[float]:
        """Seconds between frames."""
        return [after - before for before, after in zip(self.frames, self.frames[1:], strict=False)]


async def complete(url: str, body: dict[str, object]) -> Answer:
    """Post `body` to /v1/completions as a stream and read the answer. A failure is in `error`."""
    answer = Answer(time.perf_counter())
    try:
        await _exchange(url, body, answer)
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        answer.error = f"{type(error).__name__}: {error}"
    answer.ended = time.perf_counter()
    if not answer.error and not answer.frames:
        answer.error = "no frame came"
    return answer


async def _exchange(url: str, body: dict[str, object], answer: Answer) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80, limit=_LIMIT)
    try:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        content = json.dumps({**body, **options}, separators=(",", ":")).encode()
        head = (
            f"POST {parts.path.rstrip('/')}/v1/completions HTTP/1.1\r\nhost: {parts.netloc}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        writer.write(head.encode() + content)
        status = (await reader.readline()).split(b" ", 2)
        headers = (await reader.readuntil(b"\r\n\r\n")).lower()
        if status[1] != b"200":
            answer.error = f"status {status[1].decode()}: {(await reader.read(500)).decode(errors='replace')}"
            return
        async for event in _events(_parts(reader, chunked=b"chunked" in headers)):
            _take(event, answer)
    finally:
        writer.close()


async def _parts(reader: asyncio.StreamReader, *, chunked: bool) -> AsyncIterator[bytes]:
    """The pieces of a body as they come."""
    while not chunked and (piece := await reader.read(_LIMIT)):
        yield piece
    while chunked and (size := int((await reader.readline()).split(b";")[0], 16)):
        yield (await reader.readexactly(size + 2))[:-2]


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of server-sent events."""
    buffer = b""
    async for piece in pieces:
        *events, buffer = (buffer + piece).split(b"\n\n")
        for event in events:
            if event.startswith(b"data: "):
                yield event[6:]


def _take(event: bytes, answer: Answer) -> None:
    now = time.perf_counter()
    if event == b"[DONE]":
        return
    if _TOKENS in event or b'"error"' in event:  # the others are not worth the decoding
        frame = json.loads(event)
        if "error" in frame:
            answer.error = str(frame["error"])
        usage = frame.get("usage")
        answer.num_tokens = usage["completion_tokens"] if usage else answer.num_tokens
        if not frame.get("choices"):
            return
    answer.frames.append(now)
