"""A frontend from its first connection to its last answer."""

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from ..engine.async_client import AsyncClient
from .app import build_app
from .config import FrontendConfig
from .metrics.lag import watch_loop
from .server import Server, open_sockets
from .service import Service
from .text_service import TextService

T = TypeVar("T")

_log = logging.getLogger(__name__)
_LOOK_EVERY = 0.05  # seconds between looks at what still runs while draining


async def run_frontend(config: FrontendConfig, metrics_dir: Path | None) -> None:
    """Serve until SIGTERM, or SIGUSR1 for an end at once.

    Raises StartupError when a part cannot be loaded.
    """
    loop, stop, end_now = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def end() -> None:
        end_now.set()
        stop.set()

    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, end)
    await Frontend(config, metrics_dir).run(stop, end_now)


class Frontend:
    """The server and what it serves. Make and run it on one loop.

    Connections are accepted at once; until tokenizer and engine are there the answer is 503.
    """

    def __init__(self, config: FrontendConfig, metrics_dir: Path | None) -> None:
        """`metrics_dir` holds the metrics files of all processes; without one this process shows its own."""
        self.service = Service(config, metrics_dir=metrics_dir)
        self._server = Server(
            build_app(self.service), head_seconds=config.head_timeout, body_seconds=config.body_timeout
        )

    async def run(self, stop: asyncio.Event, end_now: asyncio.Event | None = None) -> None:
        """Serve until `stop` is set, then let running requests end; no longer once `end_now` is set.

        Raises StartupError when a part cannot be loaded.
        """
        service, server = self.service, self._server
        serving = asyncio.create_task(server.serve(open_sockets(service.config)))
        watching = asyncio.create_task(watch_loop(service.metrics))
        loading = asyncio.create_task(_load(service))
        stopping = asyncio.create_task(stop.wait())
        try:
            await _first_of(stopping, serving, loading)
            await _first_of(stopping, serving)
            await _drain(service, end_now or asyncio.Event())
        finally:
            service.close()
            server.should_exit = True
            for task in (watching, loading, stopping):
                task.cancel()
            await serving


async def _load(service: Service) -> None:
    config = service.config
    parsers = {"tool_parser": config.tool_call_parser, "reasoning_parser": config.reasoning_parser}
    text = await _on_thread(lambda: TextService.load(Path(config.model_path), **parsers))
    engine = AsyncClient(text.tokenizer, f"frontend-{config.index}", recover=True, behind=config.most_behind)
    engine.connect(config.scheduler_endpoint)
    service.attach(text, engine)


async def _on_thread(work: Callable[[], T]) -> T:
    """The result of `work`, from a thread that does not keep the process alive: a load may take minutes."""
    result: Future[T] = Future()

    def run() -> None:
        result.set_running_or_notify_cancel()
        try:
            result.set_result(work())
        except Exception as error:
            result.set_exception(error)

    threading.Thread(target=run, name="load", daemon=True).start()
    return await asyncio.wrap_future(result)


async def _first_of(*tasks: "asyncio.Task[None] | asyncio.Task[bool]") -> None:
    """Wait for the first of the tasks to end; raises what it raised."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _drain(service: Service, end_now: asyncio.Event) -> None:
    """Refuse new requests and wait for the running ones, as long as they have time and an engine may come."""
    service.draining = True
    timeout = service.config.shutdown_timeout
    deadline = time.monotonic() + timeout
    while service.open_requests and not service.engine_dead and time.monotonic() < deadline:
        if end_now.is_set():
            break
        await asyncio.sleep(_LOOK_EVERY)
    if service.open_requests:
        _log.warning("%d requests end unfinished", service.open_requests)
