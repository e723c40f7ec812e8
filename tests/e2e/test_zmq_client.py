"""A program that has only zmq and msgpack is a client of the scheduler."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import octavo
from octavo.tests.support.models import make_ctx_model
from octavo.tests.support.server import Server, start_server

pytestmark = pytest.mark.e2e

SCRIPT = Path(octavo.__file__).parent / "scripts" / "zmq_client.py"
PROMPT = ["5", "6", "7", "8"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(make_ctx_model(tmp_path_factory.mktemp("ctx")), "--device", "sim") as server:
        yield server


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the script where octavo cannot be imported."""
    return subprocess.run(
        [sys.executable, "-I", str(SCRIPT), *arguments], capture_output=True, text=True, timeout=60
    )


def test_it_imports_nothing_of_octavo() -> None:
    names = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(SCRIPT.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert names - sys.stdlib_module_names == {"zmq", "msgpack"}


def test_it_gets_the_tokens_that_http_gets(server: Server) -> None:
    done = run(str(server.run_dir), *PROMPT, "--max-tokens", "20")
    body = {"prompt": [int(token) for token in PROMPT], "max_tokens": 20, "temperature": 0}
    answer = httpx.post(f"{server.url}/v1/completions", json={**body, "return_token_ids": True}).json()
    assert [int(token) for token in done.stdout.split()] == answer["choices"][0]["token_ids"]
    assert "20 tokens" in done.stderr
    assert done.returncode == 0


def test_a_refusal_is_told(server: Server) -> None:
    done = run(str(server.run_dir), "999999")
    assert "InvalidRequestError" in done.stderr
    assert done.returncode != 0
