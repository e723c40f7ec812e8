"""`octavo`: one subcommand, one exit status, and one line on standard error when something is wrong."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from ... import __version__
from ...protocol.errors import OctavoError, StartupError, UsageError

# A command's module is loaded when it is called: its name here, with `_` for `-`.
_COMMANDS = {
    "serve": "serve a model over HTTP",
    "chat": "chat in the terminal",
    "demo-model": "fetch the demo model and print its folder",
    "bench": "measure it: serve, offline, startup, soak, steps, kernels, scheduler, policy",
    "replay": "run a scheduler's journal again and compare",
}
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status; docs/operations.md lists them."""
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        arguments = _parser(argv[0] if argv else "").parse_args(argv)
        status: int = arguments.run(arguments)
    except StartupError as error:
        return _fail(error, error.exit_status)
    except OctavoError as error:
        return _fail(error, UsageError.exit_status if isinstance(error, ValueError) else 1)
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status


def _fail(error: OctavoError, status: int) -> int:
    sys.stderr.write(f"octavo: error: {' '.join(error.message.split())}\n")
    return status


class _Parser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def _parser(called: str) -> argparse.ArgumentParser:
    """The parser, with the arguments of the command that is called."""
    # No abbreviations: a flag that is added later must not change what a shortened one means.
    parser = _Parser(
        prog="octavo", description="An LLM inference server made of small processes.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"octavo {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, text in _COMMANDS.items():
        command = commands.add_parser(name, help=text, allow_abbrev=False)
        if name == called:
            module = import_module(f".{name.replace('-', '_')}", __package__)
            command.description = (module.__doc__ or "").splitlines()[0]
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser
