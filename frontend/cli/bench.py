"""Measure Octavo as a client sees it, or a part of it: kernels, scheduler, policies in simulated time."""

import argparse
import subprocess

_MODULES = {
    "serve": ("frontend.bench.serve", "loads over HTTP by name, and latency against load"),
    "offline": ("frontend.bench.offline", "`LLM.generate` on named work"),
    "startup": ("frontend.bench.startup", "from the command to the first token, phase by phase"),
    "soak": ("frontend.bench.soak", "thousands of requests, some left in the middle, and the memory"),
    "steps": ("worker_proc.cuda.bench", "steps of a CUDA worker alone"),
    "kernels": ("kernels.bench", "each kernel on a CUDA device beside what bounds it"),
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
