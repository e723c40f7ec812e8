"""The HTTP protocol of uvicorn, with what ASGI has no word for: ending the connection with an answer."""

from typing import cast

from starlette.types import Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ...protocol.errors import InvalidRequestError
from .responses.errors import error_body

_CYCLE = "octavo.cycle"


class Protocol(HttpToolsProtocol):
    """Puts the request's cycle into its scope, and refuses what is no HTTP in the form of all errors."""

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


def direct_send(scope: Scope, send: Send) -> Send:
    """The server's own `send`, past all layers: they look at the start of an answer only."""
    cycle = _cycle(scope)
    return send if cycle is None else cast(Send, cycle.send)


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
