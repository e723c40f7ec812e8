"""A struct as the body of an answer."""

import msgspec
from starlette.responses import Response


def json_response(body: msgspec.Struct) -> Response:
    """Status 200 with `body` as JSON."""
    return Response(msgspec.json.encode(body), media_type="application/json")
