"""A frontend from its first connection to its last answer."""

import asyncio
import logging
import os
import signal
import time
from pathlib import Path

from ..engine.async_client import AsyncClient
from .app import build_app
from .config import FrontendConfig
from .metrics.lag import watch_loop
from .server import Server, open_sockets
from .service import Service
from .text_service import TextService

_log = logging.getLogger(__name__)
_LOOK_EVERY = 0.05  # seconds between looks at what still runs while draining


async def run_frontend(config: FrontendConfig) -> None:
    """Serve until SIGTERM, then let running requests end. Raises StartupError when a part cannot be loaded.

    Connections are accepted at once; until tokenizer and engine are there the answer is 503.
    """
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    service = Service(config, metrics_dir=_metrics_dir())
    server = Server(build_app(service))
    serving = asyncio.create_task(server.serve(open_sockets(config)))
    watching = asyncio.create_task(watch_loop(service.metrics))
    loading = asyncio.create_task(_load(service))
    stopping = asyncio.create_task(stop.wait())
    try:
        await _first_of(stopping, serving, loading)
        await _first_of(stopping, serving)
        await _drain(service, config.shutdown_timeout)
    finally:
        service.close()
        server.should_exit = True
        for task in (watching, loading, stopping):
            task.cancel()
        await serving


async def _load(service: Service) -> None:
    text = await asyncio.to_thread(TextService.load, Path(service.config.model_path))
    engine = AsyncClient(text.tokenizer, f"frontend-{service.config.index}", recover=True)
    engine.connect(service.config.scheduler_endpoint)
    service.attach(text, engine)


async def _first_of(*tasks: "asyncio.Task[object]") -> None:
    """Wait for the first of the tasks to end; raises what it raised."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _drain(service: Service, timeout: float) -> None:
    """Refuse new requests and wait for the running ones; those that take longer end with an error."""
    service.draining = True
    deadline = time.monotonic() + timeout
    while service.open_requests and time.monotonic() < deadline:
        await asyncio.sleep(_LOOK_EVERY)
    if service.open_requests:
        _log.warning("%d requests did not end within %g s", service.open_requests, timeout)


def _metrics_dir() -> Path | None:
    """Where the parent wants the metrics files, as prometheus_client was told."""
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    return None if folder is None else Path(folder)
