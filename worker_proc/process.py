"""The life of a worker process: configuration, lifeline, introduction, load, loop, and a truthful end."""

import gc
import logging
import sys
from pathlib import Path

import msgspec

from ..protocol.config import WorkerConfig, load_config
from ..protocol.errors import StartupError, UsageError
from ..protocol.lifecycle import WorkerFailed, WorkerReady
from ..protocol.lifeline import watch_lifeline
from .link import Announcer, SchedulerLink
from .phases import StartPhases, describe
from .signals import StopSignal

_log = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Run a worker to its end and return its exit status: 0 after a stop, else that of the error's kind."""
    if len(argv) != 2:
        sys.stderr.write("usage: python -m octavo.worker_proc CONFIG\n")
        return UsageError.exit_status
    path = Path(argv[1])
    phases = StartPhases("start")
    try:
        config = load_config(path, WorkerConfig)
    except (OSError, msgspec.DecodeError) as error:
        return _report(path, UsageError(f"cannot read the worker's configuration {path}: {error}"))
    watch_lifeline(config.lifeline_fd, config.parent_pid)
    stop = StopSignal()
    logging.basicConfig(level=config.log_level, format=_log_format(config), stream=sys.stderr)
    link = SchedulerLink(config)
    try:
        _serve(config, link, phases, stop)
    except Exception as error:
        status = _report(path, error)
        link.close(WorkerFailed(link.incarnation, type(error).__name__, _one_line(error)))
        return status
    link.close()
    return 0


def _serve(config: WorkerConfig, link: SchedulerLink, phases: StartPhases, stop: StopSignal) -> None:
    announcer = Announcer(link, phases)
    try:
        phases.enter("import")
        from .devices import load_runner  # brings NumPy, and torch unless the device is simulated
        from .loop import WorkerLoop

        runner = load_runner(config, phases)
    finally:
        announcer.finish()
    ready = WorkerReady(
        incarnation=link.incarnation,
        kv_groups=runner.kv_groups,
        max_num_seqs=runner.max_num_seqs,
        max_num_batched_tokens=runner.max_num_batched_tokens,
        vocab_size=runner.vocab_size,
        phases=phases.finish(),
    )
    link.announce(ready)
    _log.info("ready after %s", describe(ready.phases))
    # What the load left behind lives as long as the process: no collection needs to look at it again.
    gc.collect()
    gc.freeze()
    stop.serving = True
    WorkerLoop(link, runner, stop, config.poll_us).run()


def _report(config_path: Path, error: Exception) -> int:
    """Leave the root cause where the supervisor looks for it; returns the exit status."""
    line = f"{type(error).__name__}: {_one_line(error)}"
    config_path.with_suffix(".error").write_text(line + "\n")
    if isinstance(error, StartupError):
        _log.error("%s", line)
        return error.exit_status
    _log.exception("the worker ends")
    return 1


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _log_format(config: WorkerConfig) -> str:
    name = f"worker {config.group}.{config.rank}"
    return f"%(asctime)s %(levelname)s {name} %(message)s"
