"""`octavo serve`: the port, the model and the run directory, then a supervisor over all processes."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ...protocol.config import save_config
from ...protocol.lifeline import Lifeline, watch_lifeline
from ..engine.args import EngineArgs
from ..engine.resolve import ResolvedModel, resolve_model
from ..http.config import FrontendConfig
from .children import ChildSpec
from .configs import CLIENTS, WORKERS, engine_specs
from .ports import bind_port
from .run_dir import RunDir, create_run_dir, use_run_dir
from .supervisor import ServerParts, Supervisor

_CORES_A_FRONTEND = 4
_MAX_FRONTENDS = 8


@dataclass(frozen=True, kw_only=True)
class ServeArgs:
    """What `octavo serve` was told besides the engine's arguments."""

    host: str
    port: int  # 0: a free one
    num_frontends: int  # 0: by the number of cores
    shutdown_timeout: float  # seconds
    run_dir: Path | None  # None: a new one
    lifeline_fd: int = -1  # read end of a parent's pipe, -1 for none
    served_names: tuple[str, ...] = ()  # empty: the model's
    zmq_endpoints: tuple[str, ...] = ()
    http: dict[str, object] = field(default_factory=dict)  # further fields of FrontendConfig


@dataclass(frozen=True)
class Started:
    """A server that answers."""

    url: str
    model: str
    run_dir: Path
    phases: tuple[tuple[str, float], ...]  # name and seconds; they sum to the time from the start


def serve(engine: EngineArgs, args: ServeArgs, on_ready: Callable[[Started], None]) -> int:
    """Serve until told to end; returns the exit status.

    `on_ready` is called once, when a generation could run. Raises a StartupError for whatever hinders.
    """
    phases = _Phases()
    listener = bind_port(args.host, args.port)
    phases.end("port")
    model = resolve_model(engine)
    phases.end("model")
    run_dir = use_run_dir(args.run_dir) if args.run_dir is not None else create_run_dir()
    lifeline = Lifeline()
    try:
        parts = ServerParts(
            model=model.served_name,
            endpoint=run_dir.endpoint(CLIENTS),
            control=run_dir.endpoint(WORKERS),
            engine=engine_specs(engine, model, run_dir, lifeline, args.zmq_endpoints),
            frontends=_frontend_specs(engine, args, model, run_dir, lifeline, listener.fileno()),
            shutdown_timeout=args.shutdown_timeout,
            max_restarts=engine.max_restarts,
        )
        phases.end("configuration")

        def ready(url: str) -> None:
            phases.end("processes")
            on_ready(Started(url, model.served_name, run_dir.path, phases.done))

        supervisor = Supervisor(parts, run_dir, listener, ready)
        if args.lifeline_fd >= 0:
            watch_lifeline(args.lifeline_fd, os.getppid(), on_orphaned=supervisor.interrupt)
        return supervisor.run()
    finally:
        listener.close()
        lifeline.cut()
        run_dir.close()


def _frontend_specs(
    engine: EngineArgs,
    args: ServeArgs,
    model: ResolvedModel,
    run_dir: RunDir,
    lifeline: Lifeline,
    listen_fd: int,
) -> tuple[ChildSpec, ...]:
    config = FrontendConfig(
        run_dir=str(run_dir.path),
        scheduler_endpoint=run_dir.endpoint(CLIENTS),
        lifeline_fd=lifeline.read_fd,
        parent_pid=os.getpid(),
        listen_fds=(listen_fd,),
        model_path=str(model.tokenizer_path),
        served_names=args.served_names or (model.served_name,),
        max_model_len=model.max_model_len,
        request_timeout=engine.request_timeout,
        shutdown_timeout=args.shutdown_timeout,
        log_level=engine.log_level,
        **args.http,  # type: ignore[arg-type]
    )
    specs = []
    for index in range(args.num_frontends or frontends_for(len(os.sched_getaffinity(0)))):
        path = run_dir.path / f"frontend-{index}.json"
        save_config(msgspec.structs.replace(config, index=index), path)
        specs.append(ChildSpec("frontend", path, (lifeline.read_fd, listen_fd), run_dir.metrics))
    return tuple(specs)


def frontends_for(cores: int) -> int:
    """How many share the port by default: one on small machines, where the model needs the cores."""
    return max(1, min(_MAX_FRONTENDS, cores // _CORES_A_FRONTEND))


class _Phases:
    """The start, cut into phases without gaps."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.done: tuple[tuple[str, float], ...] = ()

    def end(self, name: str) -> None:
        now = time.monotonic()
        self.done = (*self.done, (name, now - self._last))
        self._last = now
