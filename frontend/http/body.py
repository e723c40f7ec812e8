"""The bytes of a request's body, within bounds."""

from starlette.requests import ClientDisconnect, Request

from ...protocol.errors import BodyTooLargeError, ContentTypeError


async def read_json_body(request: Request, limit: int) -> bytes:
    """The body of a request that declares it as JSON.

    Raises ContentTypeError, BodyTooLargeError as soon as the body is known to pass `limit` bytes, and
    ClientDisconnect when the client goes before its end.
    """
    declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Only a declared JSON body keeps browsers from sending requests on behalf of any page they show.
    if declared != "application/json" and not declared.endswith("+json"):
        raise ContentTypeError(
            f"send the body as application/json, not as {declared or 'nothing in particular'}"
        )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise _too_large(limit)
    parts, size = [], 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body must have at most {limit} bytes")
