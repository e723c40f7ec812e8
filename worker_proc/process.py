"""The life of a worker process: configuration, lifeline, introduction, load, loop, and a truthful end."""

import gc
import logging

from ..protocol.child import one_line, run_child
from ..protocol.config import WorkerConfig
from ..protocol.lifecycle import WorkerFailed, WorkerReady
from ..protocol.stop_signal import StopSignal
from .link import Announcer, SchedulerLink
from .phases import StartPhases, describe

_log = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Run a worker to its end and return its exit status: 0 after a stop, else that of the error's kind."""
    phases = StartPhases("start")
    return run_child(
        argv,
        WorkerConfig,
        lambda config: f"worker {config.group}.{config.rank}",
        lambda config: _live(config, phases),
    )


def _live(config: WorkerConfig, phases: StartPhases) -> None:
    stop = StopSignal()
    link = SchedulerLink(config)
    try:
        _serve(config, link, phases, stop)
    except Exception as error:
        link.close(WorkerFailed(link.incarnation, type(error).__name__, one_line(error)))
        raise
    link.close()


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
