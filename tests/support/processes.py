"""Child processes of tests that a failing test does not wait for."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def child(command: list[str], **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that the block ends; when the block fails it is killed, for waiting would never return."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
