"""No child outlives its parent, however the parent ends."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import pytest

from octavo.protocol.lifeline import ORPHANED, Lifeline, watch_lifeline

WITHIN = 10.0  # seconds

# The grandchild says that it watches, then sleeps for longer than any test.
CHILD = """
import os, sys, time
from octavo.protocol.lifeline import watch_lifeline
watch_lifeline(int(sys.argv[1]), int(sys.argv[2]))
os.write(1, b"w")
time.sleep(600)
"""

PARENT = """
import os, subprocess, sys, time
from octavo.protocol.lifeline import Lifeline
lifeline = Lifeline()
{before}
child = subprocess.Popen(
    [sys.executable, "-c", {child!r}, str(lifeline.read_fd), str(os.getpid())],
    pass_fds=[lifeline.read_fd], start_new_session=True,
)
{after}
time.sleep(600)
"""


class Family:
    """A parent and its child. Their end shows as end-of-file on a pipe that they alone hold."""

    def __init__(self, before: str = "", after: str = "") -> None:
        self._read, write = os.pipe()
        code = textwrap.dedent(PARENT).format(child=CHILD, before=before, after=after)
        self.parent = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=write, bufsize=0
        )
        os.close(write)
        assert self.next_byte() == b"w"

    def say(self) -> None:
        """Send the parent a line."""
        assert self.parent.stdin is not None
        self.parent.stdin.write(b"\n")

    def next_byte(self) -> bytes:
        """A byte that a process wrote; empty when all are gone."""
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.append(os.read(self._read, 1)), daemon=True)
        reader.start()
        reader.join(WITHIN)
        assert got, f"a process is still there after {WITHIN} s"
        return got[0]

    def close(self) -> None:
        assert self.parent.stdin is not None
        self.parent.stdin.close()
        self.parent.kill()
        self.parent.wait(WITHIN)
        os.close(self._read)


@pytest.fixture
def family() -> Iterator[Family]:
    family = Family()
    yield family
    family.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_child_ends_with_its_parent(family: Family, number: int) -> None:
    family.parent.send_signal(number)
    family.parent.wait(WITHIN)
    assert family.next_byte() == b""


def test_a_fork_of_the_parent_does_not_keep_the_child_alive() -> None:
    """A user's program may fork workers of its own; they hold no end of the pipe."""
    fork = """
    if os.fork() == 0:
        os.close(1)
        time.sleep(20)
        os._exit(0)
    """
    family = Family(after=textwrap.dedent(fork))
    family.parent.kill()
    family.parent.wait(WITHIN)
    assert family.next_byte() == b""
    family.close()


def test_cutting_the_lifeline_ends_the_child_and_may_be_repeated() -> None:
    cut = "sys.stdin.readline(); lifeline.cut(); lifeline.cut(); os.write(1, bytes([child.wait()]))"
    family = Family(after=cut)
    family.say()
    assert family.next_byte() == bytes([ORPHANED])
    family.close()


def test_a_child_whose_parent_changed_before_it_watched_ends() -> None:
    read_fd, write_fd = os.pipe()
    orphaned = threading.Event()
    watch_lifeline(read_fd, os.getppid() + 1, on_orphaned=orphaned.set)
    assert orphaned.wait(WITHIN)
    os.close(write_fd)


def test_a_living_parent_ends_nobody() -> None:
    lifeline = Lifeline()
    orphaned = threading.Event()
    watch_lifeline(lifeline.read_fd, os.getppid(), on_orphaned=orphaned.set)
    assert not orphaned.wait(0.2)
    # The end of the watched pipe, while it is still open here, must be seen too.
    os.close(lifeline._write_fd)
    lifeline._write_fd = -1
    assert orphaned.wait(WITHIN)
