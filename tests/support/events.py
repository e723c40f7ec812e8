"""Server-sent events as a client sees them."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass
class Events:
    """A stream, folded as a client folds it."""

    chunks: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False
    errors: list[dict[str, Any]] = field(default_factory=list)

    @property
    def texts(self) -> dict[int, str]:
        """The text of each choice."""
        texts: dict[int, str] = defaultdict(str)
        for choice in self._choices():
            texts[choice["index"]] += (
                choice["text"] if "text" in choice else choice["delta"].get("content", "")
            )
        return dict(texts)

    @property
    def finish(self) -> dict[int, list[str]]:
        """Every finish reason that each choice got."""
        reasons: dict[int, list[str]] = defaultdict(list)
        for choice in self._choices():
            if choice["finish_reason"] is not None:
                reasons[choice["index"]].append(choice["finish_reason"])
        return dict(reasons)

    def logprobs(self, index: int = 0) -> list[dict[str, Any]]:
        """The logprobs objects of a choice, in order."""
        return [c["logprobs"] for c in self._choices() if c["index"] == index and c["logprobs"] is not None]

    def _choices(self) -> Iterable[dict[str, Any]]:
        return (choice for chunk in self.chunks for choice in chunk["choices"])


def parse_events(body: bytes) -> Events:
    """Parse a whole stream. Fails for anything that is no event, or stands behind the end."""
    events = Events()
    assert body.endswith(b"\n\n")
    for event in body[:-2].split(b"\n\n"):
        assert event.startswith(b"data: "), event
        assert not events.done, "an event behind [DONE]"
        if event == b"data: [DONE]":
            events.done = True
            continue
        data = json.loads(event[6:])
        if "error" in data:
            events.errors.append(data["error"])
        else:
            events.chunks.append(data)
    return events


def post_stream(http: httpx.Client, path: str, body: dict[str, Any]) -> Events:
    """Post a body with `stream`, and parse what comes."""
    answer = http.post(path, json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return parse_events(answer.content)
