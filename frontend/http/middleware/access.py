"""The outermost layer: a request's name and arrival, its count, and an answer whatever happens inside."""

import logging
import re
import time

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ....protocol.errors import RequestAbortedError
from ....protocol.ids import new_request_name
from ..responses.errors import error_response
from ..service import Service

_log = logging.getLogger(__name__)
_NAME, _GIVEN, _ARRIVAL = "octavo.name", "octavo.name_given", "octavo.arrival"
_HEADER = b"x-request-id"
_USABLE = re.compile(r"[!-~]{1,256}")


def usable_name(name: str | None) -> str | None:
    """`name` if it can be a request's name: printable ASCII without spaces, at most 256 characters."""
    return name if name is not None and _USABLE.fullmatch(name) else None


def request_name(scope: Scope) -> str:
    """What the request is called: as its header says, else a new name."""
    name: str = scope[_NAME]
    return name


def name_request(scope: Scope, name: str) -> None:
    """Call the request as its body says, unless its header did."""
    if not scope[_GIVEN]:
        scope[_NAME] = name


def arrival(scope: Scope) -> float:
    """When the request came in, by `time.monotonic`."""
    arrived: float = scope[_ARRIVAL]
    return arrived


class AccessLayer:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = usable_name(_header(scope, _HEADER))
        scope[_NAME], scope[_GIVEN] = given or new_request_name(), given is not None
        scope[_ARRIVAL] = time.monotonic()
        status = 0

        async def named_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (_HEADER, scope[_NAME].encode())]
            await send(message)

        self._service.open_requests += 1
        try:
            await self._app(scope, receive, named_send)
        except ClientDisconnect:
            _log.info("%s: the client went before its request was complete", scope[_NAME])
        except Exception as error:
            if status:
                raise  # half an answer: the server closes the connection
            _log.exception("%s: failed", scope[_NAME])
            await error_response(error)(scope, receive, named_send)
        finally:
            self._service.open_requests -= 1
            self._count(scope, status)

    def _count(self, scope: Scope, status: int) -> None:
        path = getattr(scope.get("route"), "path", "other")
        self._service.metrics.answered(path, _method(scope), status or RequestAbortedError.status)
        if self._service.config.access_log:
            seconds = time.monotonic() - scope[_ARRIVAL]
            _log.info("%s: %s %s %d in %.3f s", scope[_NAME], scope["method"], scope["path"], status, seconds)


def _header(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return None


def _method(scope: Scope) -> str:
    """A label of few values, whatever a client calls its method."""
    method: str = scope["method"]
    return method if method in ("GET", "HEAD", "POST", "OPTIONS") else "other"
