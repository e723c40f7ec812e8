"""/debug/requests/{id}: what happened to a request, in words."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ....protocol.replies import StoryEntry
from ..service import Service

_ANSWER_PREFIXES = ("chatcmpl-", "cmpl-")


class Debug:
    """For people who wonder why a request waited."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def story(self, request: Request) -> Response:
        asked = request.path_params["name"]
        for name in _names(asked):
            if entries := await self._service.engine.story(name):
                return PlainTextResponse("".join(f"{_line(entry)}\n" for entry in entries))
        raise HTTPException(404, f"no request {asked!r} is remembered")


def _names(asked: str) -> list[str]:
    """An answer's id is its request's name with a prefix."""
    return [asked, *(asked.removeprefix(prefix) for prefix in _ANSWER_PREFIXES if asked.startswith(prefix))]


def _line(entry: StoryEntry) -> str:
    return f"{entry.at_ms:12.1f} ms  {entry.what:<10} {entry.detail}".rstrip()
