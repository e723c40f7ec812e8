"""API keys."""

import hmac
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from ....protocol.errors import AuthenticationError
from ..responses.errors import error_response

_KEY = "octavo.key"
# The front page holds nothing of the server: what it shows it asks for, with a key.
_OPEN = frozenset({"/", "/health", "/health/live"})


def key_name(scope: Scope) -> str:
    """Which of several API keys a request brought, `key-1` the first; empty where there is one or none."""
    name: str = scope.get(_KEY, "")
    return name


class KeyLayer:
    """Answers 401 to a request that brings none of the keys; health is open, metrics by choice."""

    def __init__(self, app: ASGIApp, keys: Sequence[str], *, protect_metrics: bool) -> None:
        self._app = app
        self._keys = [key.encode("utf-8") for key in keys]
        self._open = _OPEN if protect_metrics else _OPEN | {"/metrics"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._open and not self._admits(scope):
            error = AuthenticationError("a valid API key is needed: Authorization: Bearer KEY")
            await error_response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _admits(self, scope: Scope) -> bool:
        """Whether the request brings a key; from now on `key_name` tells which."""
        header = next((bytes(value) for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, given = header.partition(b" ")
        given = given.strip()
        # Bytes, as the header brought them, and every key: the time must tell nothing about a key.
        matches = [hmac.compare_digest(given, key) for key in self._keys]
        if scheme.lower() != b"bearer" or not any(matches):
            return False
        if len(matches) > 1:
            scope[_KEY] = f"key-{matches.index(True) + 1}"
        return True
