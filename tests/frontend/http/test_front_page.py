"""The front page in a browser: light and dark, a chat by keyboard, and what happened to a request."""

from pathlib import Path

import pytest

from octavo.tests.support.browser import browse
from octavo.tests.support.http_frontend import HttpFrontend
from octavo.tests.support.waiting import wait_until

LIGHT, DARK = "rgb(251, 250, 247)", "rgb(23, 24, 27)"
GROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.mark.full
def test_a_chat_in_the_browser(frontend: HttpFrontend, tmp_path: Path) -> None:
    frontend.say("hello <b>there</b>")
    with browse(frontend.url) as page:
        page.wait_for("document.getElementById('state').textContent.includes('ready')")
        page.scheme("light")
        assert page.value(GROUND) == LIGHT
        page.value("document.getElementById('ask').focus()")
        page.type("hi")
        page.press("Enter", 13)
        page.wait_for("document.getElementById('messages').textContent.includes('hello <b>there</b>')")
        page.wait_for("!document.getElementById('send').disabled")
        page.wait_for("document.getElementById('speed').textContent.includes('tokens in')")
        # Every control is reached by the Tab key, in the order of the page.
        reached = set()
        for _ in range(14):
            page.press("Tab", 9)
            reached.add(page.value("document.activeElement.id || document.activeElement.tagName"))
        assert {"temperature", "max_tokens", "send", "clear", "key"} <= reached
        page.wait_for("document.querySelector('#recent button') !== null")
        page.value("document.querySelector('#recent button').click()")
        page.wait_for("!document.getElementById('story').textContent.startsWith('Choose')")
        light = page.screenshot(tmp_path / "light.png")
        page.scheme("dark")
        assert page.value(GROUND) == DARK
        dark = page.screenshot(tmp_path / "dark.png")
        assert min(len(light), len(dark)) > 10_000
        assert light != dark
        assert page.value("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_status_names_recent_requests(frontend: HttpFrontend) -> None:
    headers = {"x-request-id": "known-17"}
    assert frontend.http.post("/v1/completions", json={"prompt": "x"}, headers=headers).status_code == 200

    def recent() -> list[dict[str, object]]:
        found: list[dict[str, object]] = frontend.http.get("/status").json()["recent"]
        return found

    wait_until(lambda: any(entry["name"] == "known-17" for entry in recent()), within=10, what="it is there")
    entry = next(entry for entry in recent() if entry["name"] == "known-17")
    assert entry["finished_reason"] == "stop"
    assert entry["generation_tokens"] == len(frontend.ids("hello"))
    assert entry["queued"] == 0.002
    status = frontend.http.get("/status").json()
    assert status["ready"] is True
    assert status["models"] == ["test-model", "alias"]
