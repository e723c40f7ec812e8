"""Many streams read by a client that does next to nothing: it counts frames and forgets them."""

import asyncio
import json
import time
from dataclasses import dataclass
from functools import partial
from typing import cast
from urllib.parse import urlsplit

_FRAME = b"data: "
_END = b"data: [DONE]\n\n"
_KEPT = 64  # bytes at the end of what came: an end may be cut


@dataclass
class Counts:
    """What a number of streams brought."""

    frames: int = 0  # the end is none
    ended: int = 0  # streams that came to their end
    bytes: int = 0
    began: float = 0.0  # when the first stream was asked for, in seconds of `time.perf_counter`
    last: float = 0.0  # when the last one ended


class _Stream(asyncio.Protocol):
    def __init__(self, request: bytes, counts: Counts, ended: "asyncio.Future[None]") -> None:
        self._request = request
        self._counts = counts
        self._ended = ended
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)  # uvloop's is of another class

    def data_received(self, data: bytes) -> None:
        counts, now = self._counts, time.perf_counter()
        counts.bytes += len(data)
        # A frame is small and written at once: its mark is rarely cut, and then found with what follows.
        joined = self._tail[-len(_FRAME) + 1 :] + data
        counts.frames += joined.count(_FRAME)
        self._tail = (self._tail + data)[-_KEPT:]
        if _END in self._tail:
            counts.frames -= 1
            counts.ended += 1
            counts.last = now
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish()

    def _finish(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


async def read_streams(url: str, path: str, body: dict[str, object], count: int) -> Counts:
    """Send the same body so many times at once, and read the streams to their ends."""
    parts = urlsplit(url)
    content = json.dumps({**body, "stream": True}).encode()
    request = (
        f"POST {path} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    ).encode() + content
    loop = asyncio.get_running_loop()
    counts = Counts(began=time.perf_counter())
    ends = [loop.create_future() for _ in range(count)]
    transports = []
    for end in ends:
        stream = partial(_Stream, request, counts, end)
        transport, _ = await loop.create_connection(stream, parts.hostname or "127.0.0.1", parts.port or 80)
        transports.append(transport)
    await asyncio.gather(*ends)
    for transport in transports:
        transport.close()
    return counts
