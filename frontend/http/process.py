"""The life of a frontend process: configuration, lifeline, server, engine, and a truthful end."""

import asyncio
import gc
import logging
import signal
import sys
from pathlib import Path

import msgspec

from ...protocol.errors import StartupError, UsageError
from ...protocol.lifeline import watch_lifeline
from .config import load_config

_log = logging.getLogger(__name__)

# A request's objects die by reference counting; collections look for the rare cycle.
_GC_THRESHOLD = 50_000


def main(argv: list[str]) -> int:
    """Run a frontend to its end; returns its exit status: 0 after SIGTERM, else that of the error's kind."""
    if len(argv) != 2:
        sys.stderr.write("usage: python -m octavo.frontend CONFIG\n")
        return UsageError.exit_status
    path = Path(argv[1])
    try:
        config = load_config(path)
    except (OSError, msgspec.DecodeError) as error:
        return _report(path, UsageError(f"cannot read the frontend's configuration {path}: {error}"))
    watch_lifeline(config.lifeline_fd, config.parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(
        level=config.log_level,
        format=f"%(asctime)s %(levelname)s frontend {config.index} %(message)s",
        stream=sys.stderr,
    )
    try:
        import uvloop

        from .frontend import run_frontend

        gc.collect()
        gc.freeze()
        gc.set_threshold(_GC_THRESHOLD)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_frontend(config, Path(config.run_dir) / "metrics"))
    except Exception as error:
        return _report(path, error)
    return 0


def _report(config_path: Path, error: Exception) -> int:
    """Leave the root cause where the supervisor looks for it; returns the exit status."""
    line = f"{type(error).__name__}: {' '.join(str(error).split())}"
    config_path.with_suffix(".error").write_text(line + "\n")
    if isinstance(error, StartupError):
        _log.error("%s", line)
        return error.exit_status
    _log.exception("the frontend ends")
    return 1
