"""A small client of the HTTP API for tests: bodies in, joined answers out."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

Json = dict[str, Any]


@dataclass
class Joined:
    """A stream put together, one entry a choice index."""

    status: int
    text: dict[int, str] = field(default_factory=dict)
    finish: dict[int, list[str]] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    usage: list[Json] = field(default_factory=list)
    errors: list[Json] = field(default_factory=list)
    done: bool = False
    body: Json = field(default_factory=dict)  # of an answer that is no stream


class Client:
    """Talks to one server; every call has a time limit, so that a hang is a failure."""

    def __init__(self, url: str, timeout: float = 30.0) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=timeout)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self.http.close()

    def post(self, path: str, body: Json) -> httpx.Response:
        return self.http.post(path, json=body)

    def complete(self, prompt: Any = "x", **fields: Any) -> Json:
        """One completion that must succeed: the answer's body."""
        return self._good("/v1/completions", {"prompt": prompt, "temperature": 0, **fields})

    def chat(self, content: Any = "x", **fields: Any) -> Json:
        """One chat answer that must succeed: the answer's body."""
        messages = [{"role": "user", "content": content}]
        return self._good("/v1/chat/completions", {"messages": messages, "temperature": 0, **fields})

    def text(self, prompt: Any = "x", **fields: Any) -> str:
        text: str = self.complete(prompt, **fields)["choices"][0]["text"]
        return text

    def stream(self, prompt: Any = "x", **fields: Any) -> Joined:
        return self.joined("/v1/completions", {"prompt": prompt, "temperature": 0, **fields, "stream": True})

    def joined(self, path: str, body: Json) -> Joined:
        """Post a streaming body and put the frames together."""
        with self.http.stream("POST", path, json=body) as response:
            joined = Joined(response.status_code)
            if not response.headers["content-type"].startswith("text/event-stream"):
                response.read()
                joined.body = response.json()
                return joined
            for frame in frames(response):
                _join(joined, frame)
        return joined

    def refused(self, path: str, body: Json) -> Json:
        """Post a body that must be refused with 400 and an error object: the error."""
        response = self.post(path, body)
        assert response.status_code == 400, (response.status_code, response.text)
        error: Json = response.json()["error"]
        assert error["message"]
        assert error["type"]
        return error

    def teach_short_answers(self, count: int) -> None:
        """Answers of one token, so that the server expects short ones and admits more than will fit."""
        for _ in range(count):
            self.complete([5], max_tokens=1)

    def alive(self) -> bool:
        """Whether /health is 200 and a 1-token completion answers."""
        if self.http.get("/health").status_code != 200:
            return False
        response = self.http.post("/v1/completions", json={"prompt": [1], "max_tokens": 1}, timeout=10.0)
        return response.status_code == 200

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels."""
        total = 0.0
        for line in self.http.get("/metrics").text.splitlines():
            head, _, value = line.rpartition(" ")
            if head.split("{")[0] == name and all(f'{k}="{v}"' in head for k, v in labels.items()):
                total += float(value)
        return total

    def _good(self, path: str, body: Json) -> Json:
        response = self.post(path, body)
        assert response.status_code == 200, (response.status_code, response.text)
        answer: Json = response.json()
        return answer


def frames(response: httpx.Response) -> Iterator[str]:
    """The data of each server-sent event."""
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield line.removeprefix("data: ")


def _join(joined: Joined, frame: str) -> None:
    if frame == "[DONE]":
        joined.done = True
        return
    chunk = json.loads(frame)
    if "error" in chunk:
        joined.errors.append(chunk["error"])
        return
    if chunk.get("usage"):
        joined.usage.append(chunk["usage"])
    for choice in chunk["choices"]:
        index = choice["index"]
        piece = choice["text"] if "text" in choice else choice["delta"].get("content") or ""
        joined.text[index] = joined.text.get(index, "") + piece
        joined.pieces.append(piece)
        if choice["finish_reason"] is not None:
            joined.finish.setdefault(index, []).append(choice["finish_reason"])
