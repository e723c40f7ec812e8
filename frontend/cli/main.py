"""`octavo`: one subcommand, one exit status, and one line on standard error when something is wrong."""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from ... import __version__
from ...protocol.errors import OctavoError, StartupError, UsageError
from . import chat, demo_model, replay, serve

_COMMANDS = (serve, chat, demo_model, replay)
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status; docs/operations.md lists them."""
    try:
        arguments = _parser().parse_args(argv)
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


def _parser() -> argparse.ArgumentParser:
    # No abbreviations: a flag that is added later must not change what a shortened one means.
    parser = _Parser(
        prog="octavo", description="An LLM inference server made of small processes.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"octavo {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        sub = commands.add_parser(
            command.NAME,
            help=command.HELP,
            description=command.__doc__.splitlines()[0] if command.__doc__ else None,
            allow_abbrev=False,
        )
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return parser
