"""`docs/metrics.md` says what the processes export."""

import subprocess
import sys
from pathlib import Path

import octavo

PAGE = Path(octavo.__file__).parent / "docs" / "metrics.md"


def test_the_page_is_up_to_date() -> None:
    # In a process of its own: metrics register themselves once a process.
    command = [sys.executable, "-m", "octavo.scripts.metrics_page"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == PAGE.read_text(), f"run: {' '.join(command[1:])} > docs/metrics.md"
