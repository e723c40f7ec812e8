"""The least client that a terminal needs: one streamed chat answer, with the standard library alone."""

import http.client
import json
from collections.abc import Generator, Iterator
from typing import TypedDict
from urllib.parse import urlsplit

from ...protocol.errors import EngineUnavailableError, OctavoError, UsageError

_CONNECT_SECONDS = 10.0


class ChatMessage(TypedDict):
    """One turn of a conversation."""

    role: str
    content: str


class ChatClient:
    """Talks to a server's /v1/chat/completions."""

    def __init__(self, url: str, api_key: str = "") -> None:
        """Raises UsageError when `url` is no http address."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise UsageError(f"a server's URL looks like http://127.0.0.1:8000, got {url!r}", param="url")
        self._url = url
        self._address = (parts.hostname, parts.port or 80)
        self._path = parts.path.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"
        self._headers = {"content-type": "application/json"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"

    def answer(self, messages: list[ChatMessage], **options: float | None) -> Generator[str, None, None]:
        """The next answer, piece by piece. Closing the iterator early ends the request.

        Raises EngineUnavailableError when there is no server, OctavoError with the server's words when it
        refuses or fails.
        """
        body = {"messages": messages, "stream": True}
        body |= {name: value for name, value in options.items() if value is not None}
        connection = http.client.HTTPConnection(*self._address, timeout=_CONNECT_SECONDS)
        try:
            connection.request("POST", self._path, json.dumps(body), self._headers)
            if connection.sock is not None:
                connection.sock.settimeout(None)  # the first token may be long in coming
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise OctavoError(_words(response.read().decode(errors="replace")))
            yield from _pieces(response)
        except (OSError, http.client.HTTPException) as error:
            raise EngineUnavailableError(f"no answer from {self._url}: {error}") from error
        finally:
            connection.close()


def _pieces(response: http.client.HTTPResponse) -> Iterator[str]:
    for line in response:
        data = line.decode().strip().removeprefix("data: ")
        if not data or data == "[DONE]":
            continue
        frame = json.loads(data)
        if "error" in frame:
            raise OctavoError(_words(data))
        for choice in frame["choices"]:
            yield choice["delta"].get("content") or ""


def _words(body: str) -> str:
    """The message of an error body, or the body itself when it is something else."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body or "the server closed the connection"
