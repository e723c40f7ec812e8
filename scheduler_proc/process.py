"""The life of a scheduler process: configuration, lifeline, loop, and a truthful end."""

import gc
import secrets
from pathlib import Path

from ..protocol.child import run_child
from ..protocol.config import SchedulerConfig
from ..protocol.ids import new_incarnation
from ..protocol.stop_signal import StopSignal
from .allocator import keep_memory

_GC_THRESHOLD = 50_000  # allocations; the core makes no cycles, so collections may be rare


def main(argv: list[str]) -> int:
    """Run a scheduler to its end; returns its exit status: 0 after SIGTERM, else that of the error's kind."""
    return run_child(argv, SchedulerConfig, lambda _: "scheduler", _serve)


def _serve(config: SchedulerConfig) -> None:
    keep_memory()
    stop = StopSignal()
    from .core.scheduler import Scheduler  # brings NumPy
    from .core.state import Identity
    from .journal import Journal
    from .loop import Loop
    from .metrics import Metrics

    identity = Identity(new_incarnation(), secrets.token_bytes(32))
    journal = Journal(Path(config.journal), config, identity) if config.journal else None
    core = Scheduler(config, identity)
    loop = Loop(config, core, stop_fd=stop.readable.fileno(), journal=journal, metrics=Metrics())
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    stop.serving = True
    loop.run()
