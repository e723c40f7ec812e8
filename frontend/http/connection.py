"""The HTTP protocol of uvicorn, with what ASGI has no word for: ending the connection with an answer."""

import asyncio
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ...protocol.errors import InvalidRequestError
from .responses.errors import error_body

_UNREAD = 16 << 10  # bytes that may wait for a slow reader before nothing more is written
_LONGEST_HEAD = 64 << 10  # bytes
_CYCLE = "octavo.cycle"


class Protocol(HttpToolsProtocol):
    """Puts the request's cycle into its scope, and refuses what is no HTTP in the form of all errors.

    A request must arrive within bounds of time, and its head within bounds of size: whoever opens connections
    and says nothing, or little, holds none of them for long.
    """

    def __init__(self, *args: Any, head_seconds: float, body_seconds: float, **options: Any) -> None:
        """The bounds are for a head, from when the connection is there, and for the body behind it."""
        super().__init__(*args, **options)
        self._head_seconds = head_seconds
        self._body_seconds = body_seconds
        self._head_bytes = 0
        self._in_head = True
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(high=_UNREAD)
        super().connection_made(transport)
        self._expect_within(self._head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_within(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > _LONGEST_HEAD:
                self._refuse("431 Request Header Fields Too Large", "the request's head is too long")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        self._expect_within(self._head_seconds)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.scope[_CYCLE] = self.cycle  # type: ignore[literal-required]
        self._in_head = False
        self._expect_within(self._body_seconds)

    def on_message_complete(self) -> None:
        self._expect_within(None)
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse("400 Bad Request", "this is not an HTTP request")

    def _expect_within(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        if self.transport.is_closing():
            return
        if self._in_head or not self.cycle.response_started:
            self._refuse("408 Request Timeout", "the request took too long to arrive")
        else:
            self.transport.close()

    def _refuse(self, status: str, message: str) -> None:
        body = error_body(InvalidRequestError(message))
        head = (
            f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()


class Wire:
    """The body of a streamed answer, past all layers: they look at the start of an answer only."""

    def __init__(self, scope: Scope) -> None:
        """The answer must have begun."""
        cycle = _cycle(scope)
        assert cycle is not None and cycle.chunked_encoding
        self._cycle = cycle

    @property
    def paused(self) -> bool:
        """The reader is behind: nothing more should be written before `drain`."""
        return self._cycle.flow.write_paused

    async def drain(self) -> None:
        """Wait until the reader has caught up, or is gone."""
        await self._cycle.flow.drain()

    def write(self, part: bytes) -> None:
        """Write a part of the body, which is not empty."""
        if not self._cycle.disconnected:
            self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(part), part))


def close_after(scope: Scope) -> None:
    """Close the connection when the answer is complete."""
    if (cycle := _cycle(scope)) is not None:
        cycle.keep_alive = False


def cut(scope: Scope) -> None:
    """Close the connection now: a client of a chunked answer sees that its end is missing."""
    if (cycle := _cycle(scope)) is not None:
        cycle.disconnected = True  # what is still sent is dropped
        cycle.transport.close()


def _cycle(scope: Scope) -> RequestResponseCycle | None:
    cycle = scope.get(_CYCLE)
    return cycle if isinstance(cycle, RequestResponseCycle) else None
