"""Run directories: private, short, never in each other's way, and gone when their server is."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from octavo.frontend.supervisor.run_dir import RunDir, create_run_dir, use_run_dir
from octavo.protocol.errors import UsageError


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory of short name, for this test alone."""
    with tempfile.TemporaryDirectory(prefix="o", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def abandon(run_dir: RunDir) -> None:
    """Leave the directory as a killed server does: the kernel closes its descriptors."""
    os.close(run_dir._lock)


def bind(run_dir: RunDir) -> None:
    """Bind a socket in the directory as a scheduler does, and leave a file as a killed one does."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.bind(run_dir.endpoint("clients"))
    with socket.socket(socket.AF_UNIX) as leftover:
        leftover.bind(str(run_dir.path / "left"))


def test_only_its_user_can_enter_it(base: Path) -> None:
    run_dir = create_run_dir()
    assert run_dir.path.stat().st_mode & 0o777 == 0o700
    assert run_dir.path.parent == base
    run_dir.close()


def test_closing_removes_it_and_may_be_repeated(base: Path) -> None:
    run_dir = create_run_dir()
    bind(run_dir)
    run_dir.close()
    run_dir.close()
    assert list(base.iterdir()) == []


def test_o59_sockets_fit_below_a_long_temporary_directory(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = base / ("t" * 150)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    run_dir = create_run_dir()
    try:
        bind(run_dir)
    finally:
        run_dir.close()


@pytest.mark.parametrize("length", range(60, 100, 3))
def test_o59_sockets_fit_below_a_directory_of_any_length(
    base: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    folder = base / ("t" * (length - len(str(base)) - 1))
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    run_dir = create_run_dir()
    try:
        bind(run_dir)
    finally:
        run_dir.close()


def test_o59_a_dead_server_s_directory_is_removed_by_the_next(base: Path) -> None:
    dead = create_run_dir()
    bind(dead)
    abandon(dead)
    run_dir = create_run_dir()
    assert [path.name for path in base.iterdir()] == [run_dir.path.name]
    run_dir.close()


def test_a_living_server_s_directory_stays(base: Path) -> None:
    first, second = create_run_dir(), create_run_dir()
    assert first.path.exists()
    assert first.path != second.path
    first.close()
    second.close()


def test_somebody_else_s_things_stay(base: Path) -> None:
    other = base / f"octavo-{os.getuid()}"
    other.mkdir()
    link = base / f"octavo-{os.getuid()}-link"
    link.symlink_to(other)
    create_run_dir().close()
    assert other.exists()
    assert link.is_symlink()


def test_a_fork_does_not_remove_it(base: Path) -> None:
    code = """
import os
from octavo.frontend.supervisor.run_dir import create_run_dir
run_dir = create_run_dir()
if os.fork() == 0:
    run_dir.close()
    os._exit(0)
os.wait()
assert run_dir.path.exists()
run_dir.close()
assert not run_dir.path.exists()
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "TMPDIR": str(base)})


def test_a_chosen_directory_is_made_and_used_again_after_a_kill(base: Path) -> None:
    chosen = base / "run" / "octavo"
    dead = use_run_dir(chosen)
    bind(dead)
    (chosen / "scheduler.error").write_text("ModelError: old news\n")
    abandon(dead)
    run_dir = use_run_dir(chosen)
    assert [path.name for path in chosen.iterdir()] == ["metrics"]
    bind(run_dir)
    run_dir.close()
    assert not chosen.exists()


def test_a_chosen_directory_in_use_is_refused(base: Path) -> None:
    run_dir = use_run_dir(base / "run")
    with pytest.raises(UsageError, match="in use"):
        use_run_dir(base / "run")
    run_dir.close()


def test_a_chosen_directory_with_other_things_is_refused_and_untouched(base: Path) -> None:
    (base / "letter").write_text("dear")
    with pytest.raises(UsageError, match="other things"):
        use_run_dir(base)
    assert (base / "letter").read_text() == "dear"


def test_a_chosen_directory_that_is_too_long_is_refused_with_the_bound(base: Path) -> None:
    with pytest.raises(UsageError, match="107 bytes"):
        use_run_dir(base / ("x" * 100))


def test_a_chosen_path_that_is_a_file_is_refused(base: Path) -> None:
    (base / "file").touch()
    with pytest.raises(UsageError, match="cannot use the run directory"):
        use_run_dir(base / "file")
