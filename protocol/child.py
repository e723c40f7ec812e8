"""What every child process does at its start and at its end, whatever it does between."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from .config import load_config
from .errors import StartupError, UsageError
from .lifeline import watch_lifeline

_log = logging.getLogger(__name__)


class ChildConfig(Protocol):
    """What the configuration of every child holds."""

    @property
    def lifeline_fd(self) -> int: ...

    @property
    def parent_pid(self) -> int: ...

    @property
    def log_level(self) -> str: ...


C = TypeVar("C", bound=ChildConfig)


def run_child(argv: list[str], kind: type[C], name: Callable[[C], str], body: Callable[[C], None]) -> int:
    """Read the configuration that `argv` names, watch the lifeline, and run `body` to its end.

    `name` is what log lines call the process. Returns the exit status: 0, or that of the kind of the error
    that ended the process, whose one line is left where the supervisor looks for it: beside the
    configuration, with the suffix `.error`.
    """
    if len(argv) != 2:
        sys.stderr.write("usage: python -m MODULE CONFIG\n")
        return UsageError.exit_status
    path = Path(argv[1])
    try:
        config = load_config(path, kind)
    except (OSError, msgspec.DecodeError) as error:
        return _leave_last_words(path, UsageError(f"cannot read the configuration {path}: {error}"))
    watch_lifeline(config.lifeline_fd, config.parent_pid)
    logging.basicConfig(
        level=config.log_level,
        format=f"%(asctime)s %(levelname)s {name(config)} %(message)s",
        stream=sys.stderr,
    )
    try:
        body(config)
    except Exception as error:
        return _leave_last_words(path, error)
    return 0


def one_line(error: Exception) -> str:
    """The message of an error without line breaks."""
    return " ".join(str(error).split())


def _leave_last_words(config_path: Path, error: Exception) -> int:
    line = f"{type(error).__name__}: {one_line(error)}"
    config_path.with_suffix(".error").write_text(line + "\n")
    if isinstance(error, StartupError):
        _log.error("%s", line)
        return error.exit_status
    _log.error("the process ends", exc_info=error)
    return 1
