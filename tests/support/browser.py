"""A headless Chromium, driven by its own protocol."""

import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

_WITHIN = 60.0  # seconds


class Browser:
    """One page. Needs the package `websockets`, and a program called chromium (Debian: chromium)."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.call("Page.enable")
        self.call("Runtime.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command of the protocol; events are passed over."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=_WITHIN))
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    def value(self, expression: str) -> Any:
        """What an expression on the page comes to. Fails when it throws."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression on the page is true."""
        end = time.monotonic() + _WITHIN
        while not self.value(expression):
            assert time.monotonic() < end, f"not within {_WITHIN} s: {expression}"
            time.sleep(0.05)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int) -> None:
        """Press a key by its name and its code."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)

    def scheme(self, name: str) -> None:
        """Prefer light or dark."""
        feature = {"name": "prefers-color-scheme", "value": name}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, path: Path) -> bytes:
        """Save what is seen as PNG; returns it, too."""
        data = base64.b64decode(self.call("Page.captureScreenshot")["data"])
        path.write_bytes(data)
        return data


@contextmanager
def browse(url: str) -> Iterator[Browser]:
    """A browser that shows the page at `url`."""
    from websockets.sync.client import connect

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "no chromium: install the Debian package of that name"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,1000", "--no-first-run")
        process = subprocess.Popen(
            [program, *flags, "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"],
            stderr=subprocess.DEVNULL,
        )
        try:
            pages = _pages(Path(profile) / "DevToolsActivePort", process)
            target = next(page for page in pages if page["type"] == "page")
            with connect(target["webSocketDebuggerUrl"], max_size=None) as socket:
                browser = Browser(socket)
                browser.call("Page.navigate", url=url)
                browser.wait_for("document.readyState === 'complete'")
                yield browser
        finally:
            process.kill()
            process.wait()


def _pages(port_file: Path, process: "subprocess.Popen[bytes]") -> list[dict[str, Any]]:
    end = time.monotonic() + _WITHIN
    while not (port_file.exists() and (lines := port_file.read_text().split())):
        assert process.poll() is None and time.monotonic() < end, "chromium does not start"
        time.sleep(0.05)
    pages: list[dict[str, Any]] = httpx.get(f"http://127.0.0.1:{lines[0]}/json/list").json()
    return pages
