"""Requests that run on threads of their own while a test does something else to the server."""

import json
import threading
from typing import Any

import httpx

from octavo.tests.support.client import frames


class BackgroundStream:
    """A stream of /v1/completions that is read on a thread.

    Attributes:
        text: of choice 0 so far. finish: its finish reason. error: the error frame, if one came.
        refused: status of an answer that is no stream. broken: the connection ended before the stream did.
    """

    def __init__(self, url: str, body: dict[str, Any], timeout: float = 60.0) -> None:
        self.started = threading.Event()
        self.text = ""
        self.finish: str | None = None
        self.error: dict[str, Any] | None = None
        self.refused = 0
        self.broken = False
        self._done = False
        arguments = (f"{url}/v1/completions", {**body, "stream": True}, timeout)
        self._thread = threading.Thread(target=self._read, args=arguments, daemon=True)
        self._thread.start()

    @property
    def complete(self) -> bool:
        """It came to its end without an error."""
        return self._done and self.error is None and self.finish in ("stop", "length")

    def wait_started(self, within: float = 20.0) -> None:
        """Return when the first token has come."""
        assert self.started.wait(within), f"no token comes: {self}"

    def join(self, within: float) -> None:
        """Wait for the end of the stream."""
        self._thread.join(within)
        assert not self._thread.is_alive(), f"the stream hangs for {within} s: {self}"

    def __str__(self) -> str:
        return (
            f"{len(self.text)} characters, finish {self.finish}, error {self.error}, "
            f"status {self.refused}, broken {self.broken}"
        )

    def _read(self, url: str, body: dict[str, Any], timeout: float) -> None:
        try:
            with httpx.stream("POST", url, json=body, timeout=timeout) as response:
                if response.status_code != 200:
                    self.refused = response.status_code
                    return
                for frame in frames(response):
                    self._take(frame)
        except httpx.HTTPError:
            self.broken = True

    def _take(self, frame: str) -> None:
        if frame == "[DONE]":
            self._done = True
            return
        chunk = json.loads(frame)
        self.error = chunk.get("error", self.error)
        for choice in chunk.get("choices", ()):
            if choice["index"] == 0:
                self.text += choice["text"]
                self.finish = choice["finish_reason"] or self.finish
                self.started.set()
