"""Models by hub name, from an endpoint on the loopback: fetched once, then found without it."""

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ...support.models import make_ctx_model

RESOLVE = """
import sys
from octavo.frontend.engine.args import EngineArgs
from octavo.frontend.engine.resolve import resolve_model
from octavo.protocol.errors import ModelError
try:
    print(resolve_model(EngineArgs(model=sys.argv[1])).path)
except ModelError as error:
    sys.exit(f"ModelError: {error}")
"""
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.BaseHTTPRequestHandler):
    """Serves the folder of the server as the repository `some/model`."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        folder: Path = self.server.folder  # type: ignore[attr-defined]
        path = self.path.split("?")[0]
        file = folder / path.rsplit("/", 1)[-1]
        kind = "json"
        if path.startswith("/api/models/some/model/tree"):
            files = [
                {"type": "file", "path": each.name, "size": each.stat().st_size, "oid": "0" * 40}
                for each in folder.iterdir()
            ]
            content = json.dumps(files).encode()
        elif path.startswith("/api/models/some/model"):
            names = [{"rfilename": each.name} for each in folder.iterdir()]
            content = json.dumps({"id": "some/model", "sha": COMMIT, "siblings": names}).encode()
        elif path.startswith("/some/model/resolve/") and file.is_file():
            content, kind = file.read_bytes(), "octet-stream"
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", f"application/{kind}")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    make_ctx_model(tmp_path / "served")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        server.folder = tmp_path / "served"  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def resolve(name: str, home: Path, endpoint: str, **env: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(entry for entry in sys.path if entry)
    # Neither a proxy nor settings of this machine's own take part.
    plain = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    plain |= {"PYTHONPATH": paths, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return subprocess.run(
        [sys.executable, "-c", RESOLVE, name],
        env={**plain, "HF_HOME": str(home), "HF_ENDPOINT": endpoint, **env},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_a_name_is_fetched_once_and_then_needs_no_network(tmp_path: Path, endpoint: str) -> None:
    fetched = resolve("some/model", tmp_path / "home", endpoint)
    assert fetched.returncode == 0, fetched.stderr
    folder = Path(fetched.stdout.strip().splitlines()[-1])
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        assert (folder / name).read_bytes() == (tmp_path / "served" / name).read_bytes()
    offline = resolve("some/model", tmp_path / "home", "http://127.0.0.1:9", HF_HUB_OFFLINE="1")
    assert offline.stdout == fetched.stdout


def test_what_cannot_be_fetched_is_one_line(tmp_path: Path, endpoint: str) -> None:
    for result in (
        resolve("other/model", tmp_path / "home", endpoint),
        resolve("some/model", tmp_path / "home", endpoint, HF_HUB_OFFLINE="1"),
        resolve("some/model", tmp_path / "home", "http://127.0.0.1:9"),
    ):
        assert result.returncode == 1
        last = result.stderr.strip().splitlines()[-1]
        assert last.startswith("ModelError: ") and "could not be fetched from the hub" in last
