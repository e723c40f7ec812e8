"""A start that cannot work ends with one clear line and the exit status that docs/operations.md gives it."""

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

import octavo
from octavo.protocol import errors
from octavo.tests.support.models import make_ctx_model
from octavo.tests.support.server import start_server

pytestmark = pytest.mark.e2e

WITHIN = 60.0  # seconds
USAGE, MODEL, PORT, DIED = (
    kind.exit_status
    for kind in (errors.UsageError, errors.ModelError, errors.PortInUseError, errors.ProcessDiedError)
)
Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ctx_model(tmp_path_factory.mktemp("ctx"), num_shards=2)


def serve(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `octavo serve`, which is to fail."""
    command = [sys.executable, "-m", "octavo", "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN)


def refused(*arguments: str) -> tuple[int, str]:
    """The status and the one line of a start that fails before any process is started."""
    done = serve(*arguments)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("octavo: error: ")
    return done.returncode, line


BAD_FLAGS = {
    "an unknown flag": (["--max-model-length", "64"], "--max-model-length"),
    "a shortened flag": (["--max-model", "64"], "--max-model"),
    "text for a number": (["--max-num-seqs", "many"], "--max-num-seqs"),
    "a number out of range": (["--max-num-seqs", "0"], "[1, 8192]"),
    "a port that does not exist": (["--port", "70000"], "--port"),
    "an unknown device": (["--device", "abacus"], "'cpu'"),
    "an unknown dtype": (["--dtype", "int3"], "'bfloat16'"),
    "an unknown log level": (["--log-level", "LOUD"], "INFO"),
    "an address of another machine": (["--host", "192.0.2.1"], "192.0.2.1"),
    "no host at all": (["--host", "no.such.host.invalid"], "no.such.host.invalid"),
    "sockets beyond this machine": (["--zmq-endpoint", "tcp://0.0.0.0:5555"], "loopback"),
    "a run directory that is too long": (["--run-dir", "/tmp/" + "x" * 120], "107 bytes"),
    "a run directory with other things": (["--run-dir", "/usr"], "/usr"),
}


@pytest.mark.parametrize("what", BAD_FLAGS)
def test_a_bad_flag_is_named(model: Path, what: str) -> None:
    flags, named = BAD_FLAGS[what]
    status, line = refused(str(model), "--device", "sim", "--port", "0", *flags)
    assert status == USAGE
    assert named in line


def test_no_model_at_all_is_a_mistake() -> None:
    status, line = refused()
    assert status == USAGE
    assert "MODEL" in line


def test_a_taken_port_is_named(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, line = refused(str(model), "--device", "sim", "--port", port)
    assert status == PORT
    assert port in line


def drop(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def write(name: str, text: str) -> Change:
    return lambda folder: (folder / name).write_text(text)


def change_config(**entries: object) -> Change:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        config.update(entries)
        (folder / "config.json").write_text(json.dumps(config))

    return change


def only_pickled(folder: Path) -> None:
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")


SECOND_SHARD = "model-00002-of-00002.safetensors"
BAD_FOLDERS: dict[str, tuple[Change, str]] = {
    "no config.json": (drop("config.json"), "config.json"),
    "a broken config.json": (write("config.json", "{"), "config.json"),
    "a config.json that is a list": (write("config.json", "[]"), "config.json"),
    "a missing shard": (drop(SECOND_SHARD), SECOND_SHARD),
    "pickled weights alone": (only_pickled, "pytorch_model.bin"),
}


@pytest.mark.parametrize("what", BAD_FOLDERS)
def test_a_bad_model_folder_is_named_before_anything_starts(model: Path, tmp_path: Path, what: str) -> None:
    change, named = BAD_FOLDERS[what]
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    change(folder)
    status, line = refused(str(folder), "--device", "cpu", "--port", "0")
    assert status == MODEL
    assert named in line


def test_a_model_folder_that_does_not_exist_is_named() -> None:
    status, line = refused("/no/such/model", "--port", "0")
    assert (status, "/no/such/model" in line) == (MODEL, True)


def test_a_context_beyond_the_model_s_is_refused_with_both_numbers(model: Path) -> None:
    status, line = refused(str(model), "--device", "sim", "--port", "0", "--max-model-len", "99999")
    assert status == MODEL
    assert "99999" in line
    assert "2048" in line


# What only a process that loads can know: the last line names it.
BAD_LOADS: dict[str, tuple[Change, list[str], int, str]] = {
    "a cut shard": (write(SECOND_SHARD, "cut"), ["--device", "cpu"], MODEL, SECOND_SHARD),
    "another architecture": (
        change_config(architectures=["MambaForCausalLM"], model_type="mamba"),
        ["--device", "cpu"],
        MODEL,
        "mamba",
    ),
    "an unknown rope_type": (
        change_config(rope_scaling={"rope_type": "spiral", "factor": 2.0}),
        ["--device", "cpu"],
        MODEL,
        "spiral",
    ),
    "no tokenizer": (drop("tokenizer.json"), ["--device", "sim"], MODEL, "tokenizer"),
    "a load that fails": (
        lambda _: None,
        ["--device", "sim", "--sim", "fail_load=true"],
        MODEL,
        "worker-0-0",
    ),
    "a bad option of a device": (lambda _: None, ["--device", "sim", "--sim", "speed=9"], USAGE, "speed"),
}


@pytest.mark.parametrize("what", BAD_LOADS)
def test_a_load_that_fails_ends_the_server_with_its_cause(model: Path, tmp_path: Path, what: str) -> None:
    change, flags, status, named = BAD_LOADS[what]
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    change(folder)
    done = serve(str(folder), "--port", "0", *flags)
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("octavo: error: ")
    assert named.lower() in last.lower()
    assert done.returncode == status


def test_a_worker_that_crashes_while_serving_ends_the_server_with_its_exception(model: Path) -> None:
    flags = ("--device", "sim", "--sim", "crash_after=1", "--max-restarts", "0")
    with start_server(model, *flags) as server:
        answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": [5], "max_tokens": 4}, timeout=10)
        assert answer.status_code >= 500
        assert server.wait_exit(WITHIN) == DIED
        assert "SimulatedFaultError" in server.log.splitlines()[-1]


def test_the_operations_page_lists_every_exit_status() -> None:
    page = (Path(octavo.__file__).parent / "docs" / "operations.md").read_text()
    listed = {int(status) for status in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    kinds = [errors.StartupError, *errors.StartupError.__subclasses__()]
    assert listed == {0, 130, *(kind.exit_status for kind in kinds)}
