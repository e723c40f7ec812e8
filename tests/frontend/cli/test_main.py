"""The command line itself: what it knows, and what it says to what it does not know."""

import argparse
import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

import octavo
from octavo.frontend.cli import serve
from octavo.frontend.cli.engine_flags import add_engine_flags, engine_args
from octavo.frontend.cli.main import main
from octavo.frontend.engine.args import EngineArgs
from octavo.protocol.errors import UsageError

MAX_FLAGS = 48


def parse(*flags: str) -> EngineArgs:
    """The engine's arguments of a command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_engine_flags(parser, log_level="INFO")
    return engine_args(parser.parse_args(flags), model="m")


def serve_flags() -> list[str]:
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    actions = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    return [action.option_strings[0] for action in actions if action.option_strings]


def test_without_flags_the_engine_has_its_own_defaults() -> None:
    assert parse() == EngineArgs(model="m", log_level="INFO")


def test_every_kind_of_flag_reaches_the_engine() -> None:
    args = parse("--max-num-seqs", "7", "--gpu-memory-utilization", "0.5", "--no-enable-prefix-caching")
    assert (args.max_num_seqs, args.gpu_memory_utilization, args.enable_prefix_caching) == (7, 0.5, False)
    assert parse("--enforce-eager").enforce_eager is True


def test_every_flag_of_the_engine_is_an_argument_of_it() -> None:
    parser = argparse.ArgumentParser()
    add_engine_flags(parser)
    names = {action.dest for action in parser._actions} - {"help"}
    assert names < {field.name for field in dataclasses.fields(EngineArgs)}


def test_there_are_not_too_many_flags() -> None:
    assert len(serve_flags()) <= MAX_FLAGS
    assert len(set(serve_flags())) == len(serve_flags())


def test_an_engine_argument_out_of_range_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="max_num_seqs"):
        parse("--max-num-seqs", "0")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "COMMAND"),
        ("bogus", "'serve', 'chat', 'demo-model', 'bench', 'replay'"),
        ("serve", "MODEL"),
        ("serve m --bogus 1", "--bogus"),
        ("serve m --port x", "--port"),
        ("replay", "FILE"),
        ("chat --url http://127.0.0.1:1 --keep", "--keep"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str], line: str, said: str) -> None:
    assert main(line.split()) == UsageError.exit_status
    captured = capsys.readouterr()
    assert captured.out == ""
    (written,) = captured.err.splitlines()
    assert written.startswith("octavo: error: ")
    assert said in written


@pytest.mark.parametrize("line", ["--help", "serve --help", "chat --help", "demo-model --help", "replay -h"])
def test_help_is_printed(capsys: pytest.CaptureFixture[str], line: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(line.split())
    assert end.value.code == 0
    assert "usage: octavo" in capsys.readouterr().out


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"octavo {octavo.__version__}\n"


def test_replay_runs_the_scheduler_s_own_module(tmp_path: Path) -> None:
    missing = tmp_path / "journal"
    command = [sys.executable, "-m", "octavo", "replay", str(missing)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert str(missing) in done.stderr


def test_a_file_in_the_working_directory_does_not_pass_for_a_module(tmp_path: Path) -> None:
    for name in ("zmq.py", "msgspec.py", "json.py"):
        (tmp_path / name).write_text("raise SystemExit('not me')")
    code = (
        "import subprocess\n"
        "from octavo.frontend.supervisor.python import python_environment, python_module\n"
        "command = [*python_module('scheduler_proc'), 'none.json']\n"
        "done = subprocess.run(command, env=python_environment(), capture_output=True, text=True)\n"
        "print(done.returncode, done.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=30
    )
    assert "not me" not in done.stdout + done.stderr
    assert done.stdout.startswith("2 ")
