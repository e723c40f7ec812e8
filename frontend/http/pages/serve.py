"""Fixed pages, read once."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FOLDER = Path(__file__).parent
_PAGES = {"/": "front.html", "/docs": "docs.html"}


def page_routes(openapi: bytes) -> list[Route]:
    """Routes of the pages and of the OpenAPI document."""
    routes = [_fixed("/openapi.json", openapi, "application/json")]
    for path, name in _PAGES.items():
        routes.append(_fixed(path, (_FOLDER / name).read_bytes(), "text/html; charset=utf-8"))
    return routes


def _fixed(path: str, body: bytes, media_type: str) -> Route:
    async def get(request: Request) -> Response:
        return Response(body, media_type=media_type)

    return Route(path, get, methods=["GET"])
