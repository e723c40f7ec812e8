"""The journal: private, replayable, and harmless when its disk fails."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.scheduler_proc.core.events import Turn
from octavo.scheduler_proc.journal import Journal, read_frames, replay

from .test_properties import check_history
from .world import IDENTITY, World, make_scheduler


def write(world: World, path: Path) -> None:
    journal = Journal(path, world.config, IDENTITY)
    for event, commands in world.events:
        journal.record(event, commands)
    journal.close()


def busy_world() -> World:
    world = make_scheduler()
    for number in range(4):
        world.submit([2, 3, number + 2], n=2, timeout=10.0)
    world.run()
    return world


def test_a_faulty_run_replays(tmp_path: Path) -> None:
    from random import Random

    for seed in range(3):
        world = check_history(Random(seed))
        write(world, tmp_path / "journal")
        done = replay(tmp_path / "journal")
        assert done.events == len(world.events)
        assert done.commands == sum(len(commands) for _, commands in world.events)


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text("older, and open to all")
    path.chmod(0o644)
    write(busy_world(), path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_journal_cut_by_a_crash_replays_to_its_last_whole_entry(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    world = busy_world()
    write(world, path)
    path.write_bytes(path.read_bytes()[:-3])
    assert replay(path).events == len(world.events) - 1


def test_a_full_disk_turns_it_off(caplog: pytest.LogCaptureFixture) -> None:
    world = busy_world()
    with caplog.at_level(logging.ERROR):
        journal = Journal(Path("/dev/full"), world.config, IDENTITY)
        for _ in range(3):
            for event, commands in world.events:
                journal.record(event, commands)
        journal.close()
    assert not journal.active
    assert [record.message.split(":")[0] for record in caplog.records] == ["the journal is off"]
    journal.record(Turn(1.0), [])


def test_the_command_line_says_whether_it_gave_the_same(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(busy_world(), path)

    def run(name: Path, *flags: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "octavo.scheduler_proc.replay", str(name), *flags]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    picture = tmp_path / "run.png"
    drawn = run(path, "--plot", str(picture))
    assert drawn.returncode == 0 and picture.read_bytes().startswith(b"\x89PNG")
    same = run(path)
    assert same.returncode == 0 and "the same" in same.stdout
    frames = list(read_frames(path))
    del frames[3]
    path.write_bytes(b"".join(len(frame).to_bytes(4, "little") + frame for frame in frames))
    other = run(path)
    assert other.returncode == 1 and "other commands" in other.stderr
    assert run(tmp_path / "missing").returncode == 2
