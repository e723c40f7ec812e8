"""The life of a scheduler process: configuration, lifeline, loop, and a truthful end."""

import gc
import logging
import secrets
import signal
import socket
import sys
from pathlib import Path

import msgspec

from ..protocol.config import SchedulerConfig, load_config
from ..protocol.errors import StartupError, UsageError
from ..protocol.ids import new_incarnation
from ..protocol.lifeline import watch_lifeline

_log = logging.getLogger(__name__)

_GC_THRESHOLD = 50_000  # allocations; the core makes no cycles, so collections may be rare


def main(argv: list[str]) -> int:
    """Run a scheduler to its end; returns its exit status: 0 after SIGTERM, else that of the error's kind."""
    if len(argv) != 2:
        sys.stderr.write("usage: python -m octavo.scheduler_proc CONFIG\n")
        return UsageError.exit_status
    path = Path(argv[1])
    try:
        config = load_config(path, SchedulerConfig)
    except (OSError, msgspec.DecodeError) as error:
        return _report(path, UsageError(f"cannot read the scheduler's configuration {path}: {error}"))
    watch_lifeline(config.lifeline_fd, config.parent_pid)
    stop = _stop_on_sigterm()
    logging.basicConfig(
        level=config.log_level, format="%(asctime)s %(levelname)s scheduler %(message)s", stream=sys.stderr
    )
    try:
        _serve(config, stop)
    except Exception as error:
        return _report(path, error)
    return 0


def _serve(config: SchedulerConfig, stop: socket.socket) -> None:
    from .core.scheduler import Scheduler  # brings NumPy
    from .core.state import Identity
    from .journal import Journal
    from .loop import Loop
    from .metrics import Metrics

    identity = Identity(new_incarnation(), secrets.token_bytes(32))
    journal = Journal(Path(config.journal), config, identity) if config.journal else None
    core = Scheduler(config, identity)
    loop = Loop(config, core, stop_fd=stop.fileno(), journal=journal, metrics=Metrics())
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    loop.run()


def _stop_on_sigterm() -> socket.socket:
    """A socket that becomes readable at SIGTERM. SIGINT is the supervisor's to handle."""
    readable, writable = socket.socketpair()
    writable.setblocking(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The wakeup descriptor is written where the signal arrives. A handler in Python runs later, and never
    # when the signal comes right before the main thread blocks in a poll.
    signal.set_wakeup_fd(writable.detach(), warn_on_full_buffer=False)  # open for the life of the process
    signal.signal(signal.SIGTERM, lambda _signal, _frame: None)
    return readable


def _report(config_path: Path, error: Exception) -> int:
    """Leave the root cause where the supervisor looks for it; returns the exit status."""
    line = f"{type(error).__name__}: {' '.join(str(error).split())}"
    config_path.with_suffix(".error").write_text(line + "\n")
    if isinstance(error, StartupError):
        _log.error("%s", line)
        return error.exit_status
    _log.exception("the scheduler ends")
    return 1
