"""`octavo chat`: a conversation with a server, or with one of its own."""

import os
import pty
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from octavo.tests.support.models import ScriptModel, make_script_model
from octavo.tests.support.processes import child
from octavo.tests.support.server import Server, start_server
from octavo.tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

WITHIN = 60.0
FLAGS = "--device cpu --cpu-threads 1 --max-model-len 512"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ScriptModel:
    """A model that nobody serves yet."""
    return make_script_model(tmp_path_factory.mktemp("script"), "Salut!")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    served = make_script_model(tmp_path_factory.mktemp("served"), "Salut!")
    with start_server(served.path, *FLAGS.split(), "--api-key", "key") as server:
        yield server


def chat(*arguments: str, said: str = "") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "octavo", "chat", *arguments]
    return subprocess.run(command, input=said, capture_output=True, text=True, timeout=WITHIN)


def test_one_message_is_answered(server: Server) -> None:
    done = chat("--url", server.url, "--api-key", "key", "--message", "Hi", "--temperature", "0")
    assert (done.stdout, done.stderr, done.returncode) == ("Salut!\n", "", 0)


def test_each_line_is_answered(server: Server) -> None:
    done = chat("--url", f"{server.url}/v1", "--api-key", "key", said="Hi\n\nAgain\n")
    assert (done.stdout, done.returncode) == ("Salut!\nSalut!\n", 0)


def test_max_tokens_cuts_an_answer(server: Server) -> None:
    done = chat("--url", server.url, "--api-key", "key", "--message", "Hi", "--max-tokens", "3")
    assert done.stdout == "Sal\n"


def test_a_wrong_key_is_the_server_s_message(server: Server) -> None:
    done = chat("--url", server.url, "--message", "Hi")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("octavo: error: ")
    assert "key" in line


def test_a_refused_turn_does_not_end_the_conversation(server: Server) -> None:
    done = chat("--url", server.url, "--api-key", "key", said="cat " * 1000 + "\nHi\n")
    assert done.stdout == "Salut!\n"
    assert "512" in done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "127.0.0.1:8000", "ftp://x"])
def test_no_server_is_one_clear_line(url: str) -> None:
    done = chat("--url", url, "--message", "Hi")
    (line,) = done.stderr.splitlines()
    assert url in line
    assert done.returncode != 0


@pytest.fixture
def temporary_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty one with a short path, for the processes of a test alone."""
    with tempfile.TemporaryDirectory(prefix="octavo-test-", dir="/tmp") as path:
        monkeypatch.setenv("TMPDIR", path)
        yield Path(path)


def test_its_own_server_ends_with_it(model: ScriptModel, temporary_dir: Path) -> None:
    done = chat(str(model.path), "--serve-flags", FLAGS, "--message", "Hi")
    assert (done.stdout, done.returncode) == ("Salut!\n", 0)
    assert serving(model) == []
    assert list(temporary_dir.iterdir()) == []


def test_a_server_that_cannot_start_is_its_own_error() -> None:
    done = chat("/no/such/model", "--message", "Hi")
    assert done.stderr.splitlines()[-1] == "octavo: error: no model folder at '/no/such/model'"
    assert done.returncode == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_however_it_ends_its_own_server_ends_too(
    model: ScriptModel, temporary_dir: Path, number: int
) -> None:
    command = [sys.executable, "-m", "octavo", "chat", str(model.path), "--serve-flags", FLAGS]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with child(command, **pipes) as chatting:
        assert chatting.stdin is not None
        chatting.stdin.write(b"Hi\n")
        chatting.stdin.flush()
        wait_until(lambda: len(serving(model)) == 1, within=WITHIN, what="the server starts")
        chatting.send_signal(number)
    wait_until(lambda: serving(model) == [], within=15, what="the server ends")
    assert list(temporary_dir.iterdir()) == []


def test_keep_leaves_the_server_and_says_how_to_end_it(model: ScriptModel, temporary_dir: Path) -> None:
    done = chat(str(model.path), "--serve-flags", FLAGS, "--message", "Hi", "--keep")
    (server,) = serving(model)
    try:
        url = next(word for word in done.stdout.split() if word.startswith("http"))
        assert chat("--url", url, "--message", "Hi").stdout == "Salut!\n"
        assert f"kill {server.pid}" in done.stdout
        (log,) = temporary_dir.glob("*.log")
        assert str(log) in done.stdout
    finally:
        server.terminate()
        server.wait(WITHIN)


def test_a_terminal_gets_a_prompt_and_ctrl_c_ends_only_the_answer(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    endless = make_script_model(tmp_path_factory.mktemp("endless"), "abc", loop=True, max_model_len=100_000)
    with start_server(endless.path, "--device", "cpu", "--cpu-threads", "1") as server:
        main, terminal = pty.openpty()
        command = [sys.executable, "-m", "octavo", "chat", "--url", server.url]
        with child(command, stdin=terminal, stdout=terminal, stderr=terminal) as chatting:
            os.close(terminal)
            read_until(main, b"> ")
            os.write(main, b"Hi\n")
            read_until(main, b"abcabcabc")
            chatting.send_signal(signal.SIGINT)
            read_until(main, b"...\r\n> ")
            os.write(main, b"\x04")
            assert chatting.wait(WITHIN) == 0
        os.close(main)


def read_until(descriptor: int, text: bytes) -> None:
    seen = b""
    while text not in seen:
        seen += os.read(descriptor, 1 << 16)


def serving(model: ScriptModel) -> list[psutil.Process]:
    """The supervisors that serve this model."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if {"serve", str(model.path)} <= set(process.info["cmdline"] or ()) and process.status() != "zombie"
    ]
