"""Asking the server's own door whether a generation could run now."""

import http.client
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

_POLL_SECONDS = 0.05
_ANSWER_SECONDS = 5.0


def is_healthy(url: str) -> bool:
    """Whether GET /health answers 200."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class HealthWatch:
    """Calls `on_healthy` once, on a thread, when the server has become healthy; unless closed before."""

    def __init__(self, url: str, on_healthy: Callable[[], None]) -> None:
        self._url = url
        self._on_healthy = on_healthy
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="health", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        while not is_healthy(self._url):
            if self._closed.wait(_POLL_SECONDS):
                return
        self._on_healthy()
