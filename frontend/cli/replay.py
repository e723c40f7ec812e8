"""Run a scheduler's journal again and say whether every event gives the same commands."""

import argparse
import subprocess


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the journal's name."""
    parser.add_argument("file", metavar="FILE", help="written by octavo serve --journal FILE")
    parser.add_argument(
        "--plot",
        metavar="PNG",
        help="draw queue, batch and blocks over time; needs pip install octavo[plots]",
    )


def run(arguments: argparse.Namespace) -> int:
    """Replay in a process of its own: the scheduler's code belongs to the scheduler."""
    from ..supervisor.python import python_environment, python_module

    plot = ["--plot", arguments.plot] if arguments.plot else []
    command = [*python_module("scheduler_proc.replay"), *plot, "--", arguments.file]
    return subprocess.run(command, env=python_environment(), check=False).returncode
