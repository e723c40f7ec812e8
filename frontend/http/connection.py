"""The HTTP protocol of uvicorn, with what ASGI has no word for: ending the connection with an answer."""

import asyncio

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ...protocol.errors import InvalidRequestError
from .responses.errors import error_body

_UNREAD = 16 << 10  # bytes that may wait for a slow reader before nothing more is written
_CYCLE = "octavo.cycle"


class Protocol(HttpToolsProtocol):
    """Puts the request's cycle into its scope, and refuses what is no HTTP in the form of all errors."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(high=_UNREAD)
        super().connection_made(transport)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.scope[_CYCLE] = self.cycle  # type: ignore[literal-required]

    def send_400_response(self, msg: str) -> None:
        body = error_body(InvalidRequestError("this is not an HTTP request"))
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
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
