"""The life of a frontend process: configuration, lifeline, server, engine, and a truthful end."""

import asyncio
import gc
import resource
import signal
from pathlib import Path

from ...protocol.child import run_child
from .config import FrontendConfig

# A request's objects die by reference counting; collections look for the rare cycle.
_GC_THRESHOLD = 50_000


def main(argv: list[str]) -> int:
    """Run a frontend to its end; returns its exit status: 0 after SIGTERM, else that of the error's kind."""
    return run_child(argv, FrontendConfig, lambda config: f"frontend {config.index}", _serve)


def _serve(config: FrontendConfig) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import uvloop

    from .frontend import run_frontend

    # A stream is an open file; the limit that most systems start with is for programs with few.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_frontend(config, Path(config.run_dir) / "metrics"))
