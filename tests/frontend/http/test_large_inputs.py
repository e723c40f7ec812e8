"""Large inputs: others keep their pace while they are read."""

import statistics
import threading
import time
from typing import Any

import httpx
import pytest

from octavo.tests.support.http_frontend import HttpFrontend

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
TEXT = "the cat sat on the mat " * 220_000  # 5 MB
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "text": (COMPLETIONS, {"prompt": TEXT}),
    "texts": (COMPLETIONS, {"prompt": [TEXT[:5000]] * 200}),
    "chat": (CHAT, {"messages": [{"role": "user", "content": TEXT[:1_000_000]}]}),
    "many messages": (CHAT, {"messages": [{"role": "user", "content": "x"}] * 100_000}),
    "ids": (COMPLETIONS, {"prompt": [50] * 2_000_000}),
    "lists of ids": (COMPLETIONS, {"prompt": [[50]] * 1_500_000}),
    "metadata": (COMPLETIONS, {"prompt": "x", "n": 0, "metadata": [{}] * 1_500_000}),
}


@pytest.mark.parametrize(("path", "body"), SHAPES.values(), ids=SHAPES)
def test_o61_health_answers_while_a_large_body_is_read(
    frontend: HttpFrontend, path: str, body: dict[str, Any]
) -> None:
    content = httpx.Request("POST", "http://x", json=body).read()
    answers: list[httpx.Response] = []

    def post() -> None:
        headers = {"content-type": "application/json"}
        answers.append(httpx.post(f"{frontend.url}{path}", content=content, headers=headers, timeout=60))

    poster = threading.Thread(target=post)
    poster.start()
    gaps = []
    while poster.is_alive():
        began = time.monotonic()
        assert frontend.http.get("/health").status_code == 200
        gaps.append(time.monotonic() - began)
        poster.join(0.02)
    assert answers[0].status_code == 400
    assert answers[0].json()["error"]["code"] in ("context_length_exceeded", None)
    assert max(gaps) < 0.5, f"gaps: median {statistics.median(gaps):.3f} s, most {max(gaps):.3f} s"
