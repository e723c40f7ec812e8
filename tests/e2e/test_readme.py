"""What the README shows works as written."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import octavo
from octavo.tests.support.demo import demo_model
from octavo.tests.support.server import start_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ROOT = Path(octavo.__file__).parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_python_programs_run() -> None:
    demo_model()
    assert blocks("python")
    for program in blocks("python"):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        assert "Paris" in done.stdout


def test_the_request_is_answered() -> None:
    (request,) = [block for block in blocks("sh") if block.startswith("curl")]
    words = shlex.split(request)
    path = words[1].removeprefix("http://127.0.0.1:8000")
    header, body = words[words.index("-H") + 1], words[words.index("-d") + 1]
    with start_server(demo_model(), "--device", "cpu", "--dtype", "float32") as server:
        body = json.dumps({**json.loads(body), "temperature": 0, "max_tokens": 16})
        headers = dict([header.split(": ")])
        answer = httpx.post(server.url + path, content=body, headers=headers, timeout=120)
    pieces = re.findall(r'"content":"(.*?)"', answer.text)
    assert "".join(pieces) == "The capital of France is Paris."


def test_every_script_and_page_that_is_named_exists() -> None:
    names = set(re.findall(r"scripts/[\w.-]+", README)) | set(re.findall(r"\]\((docs/[\w.-]+)\)", README))
    assert len(names) > 5
    missing = [name for name in names if not (ROOT / name).exists()]
    assert missing == []


def test_every_command_that_is_named_exists() -> None:
    for command in sorted(set(re.findall(r"^octavo ([\w-]+)", README, re.MULTILINE))):
        done = subprocess.run([sys.executable, "-m", "octavo", command, "--help"], capture_output=True)
        assert done.returncode == 0, command
