"""Measure a part of Octavo: its scheduler's own time, or its policies in simulated time."""

import argparse
import subprocess

_MODULES = {
    "scheduler": ("scheduler_proc.bench", "the scheduler's own time for a step, by rows and by what waits"),
    "policy": ("scheduler_proc.study", "shipped traces under each order on a simulated device"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the part's name; what follows it is the part's own."""
    told = "; ".join(f"{name}: {text}" for name, (_, text) in _MODULES.items())
    parser.add_argument("part", choices=_MODULES, metavar="PART", help=told)
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="arguments of the part")


def run(arguments: argparse.Namespace) -> int:
    """Measure in a process of its own: the scheduler's code belongs to the scheduler."""
    from ..supervisor.python import python_environment, python_module

    module, _ = _MODULES[arguments.part]
    command = [*python_module(module), *arguments.rest]
    return subprocess.run(command, env=python_environment(), check=False).returncode
