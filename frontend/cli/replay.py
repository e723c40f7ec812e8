"""Run a scheduler's journal again and say whether every event gives the same commands."""

import argparse
import subprocess
import sys

NAME = "replay"
HELP = "run a journal again and compare"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the journal's name."""
    parser.add_argument("file", metavar="FILE", help="written by octavo serve --journal FILE")


def run(arguments: argparse.Namespace) -> int:
    """Replay in a process of its own: the scheduler's code belongs to the scheduler."""
    package = __package__.partition(".")[0]
    command = [sys.executable, "-P", "-m", f"{package}.scheduler_proc.replay", arguments.file]
    return subprocess.run(command, check=False).returncode
