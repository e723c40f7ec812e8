"""Errors as clients see them: one shape, one table from exceptions to statuses (the exception tree's own)."""

import math
from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ....protocol.errors import InvalidRequestError, OctavoError, UnsupportedError

# What other servers of OpenAI's API have and this one has not, by the beginning of its path.
_NOT_SUPPORTED = {
    "/v1/embeddings": "embeddings are",
    "/v1/responses": "the Responses API is",
    "/v1/conversations": "the Conversations API is",
    "/v1/assistants": "the Assistants API is",
    "/v1/threads": "the Assistants API is",
    "/v1/batches": "the Batch API is",
    "/v1/files": "files are",
    "/v1/vector_stores": "vector stores are",
    "/v1/fine_tuning": "fine-tuning is",
    "/v1/images": "images are",
    "/v1/audio": "audio is",
    "/v1/moderations": "moderations are",
    "/v1/rerank": "reranking is",
    "/v1/score": "scoring is",
}


class ErrorDetail(msgspec.Struct):
    """What went wrong."""

    message: str
    type: str
    param: str | None = None  # field at fault, if one is
    code: str | None = None


class ErrorBody(msgspec.Struct):
    """Body of every answer that is an error."""

    error: ErrorDetail


def error_body(error: Exception) -> bytes:
    """The JSON of an error. An exception that is not ours tells nothing of its inside."""
    if isinstance(error, OctavoError):
        detail = ErrorDetail(error.message, error.type, error.param, error.code)
    else:
        detail = ErrorDetail("internal error", OctavoError.type)
    return msgspec.json.encode(ErrorBody(detail))


def error_response(error: Exception) -> Response:
    """The answer to a request that failed before its answer began."""
    status = error.status if isinstance(error, OctavoError) else OctavoError.status
    headers = {}
    if isinstance(error, OctavoError) and error.retry_after:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
        headers["retry-after-ms"] = str(max(1, round(error.retry_after * 1e3)))
    if status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    return Response(error_body(error), status, headers, media_type="application/json")


async def octavo_error(request: Request, error: Exception) -> Response:
    """Handler of our own exceptions."""
    return error_response(error)


async def http_error(request: Request, error: Exception) -> Response:
    """Handler of the framework's: no such path, or not with this method."""
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    message, code = error.detail, phrase.lower().replace(" ", "_")
    if error.status_code == HTTPStatus.NOT_FOUND and (feature := _missing_feature(request.url.path)):
        message, code = f"{request.url.path}: {feature} not supported by this server", UnsupportedError.code
    elif message == phrase and error.status_code == HTTPStatus.NOT_FOUND:
        message = f"there is nothing at {request.url.path}"
    elif message == phrase and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        message = f"{request.url.path} does not take {request.method}"
    detail = ErrorDetail(message, InvalidRequestError.type, code=code)
    body = msgspec.json.encode(ErrorBody(detail))
    return Response(body, error.status_code, error.headers, media_type="application/json")


def _missing_feature(path: str) -> str | None:
    for known, feature in _NOT_SUPPORTED.items():
        if path == known or path.startswith(f"{known}/"):
            return feature
    return None
