"""uvicorn as this process runs it: on inherited sockets, without its own idea of signals."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from ...protocol.errors import PortInUseError
from .config import FrontendConfig
from .connection import Protocol

_BACKLOG = 2048
_KEEP_ALIVE = 5  # seconds that an idle connection stays open
_CLOSE_WITHIN = 1  # seconds for answers that are complete to leave


class Server(uvicorn.Server):
    """Serves until `should_exit` is set."""

    def __init__(self, app: ASGIApp, *, head_seconds: float, body_seconds: float) -> None:
        """The bounds are those of `Protocol`."""
        protocol = partial(Protocol, head_seconds=head_seconds, body_seconds=body_seconds)
        config = uvicorn.Config(
            app,
            http=protocol,  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=_CLOSE_WITHIN,
        )
        super().__init__(config)
        logging.getLogger("uvicorn").setLevel(logging.WARNING)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are handled by whoever runs the process."""
        yield

    async def wait_started(self) -> None:
        """Return when connections are accepted."""
        while not self.started:
            await asyncio.sleep(0.01)


def open_sockets(config: FrontendConfig) -> list[socket.socket]:
    """The listening sockets: those inherited, else one bound here. Raises PortInUseError."""
    if config.listen_fds:
        return [socket.socket(fileno=descriptor) for descriptor in config.listen_fds]
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.host, config.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise PortInUseError(f"cannot listen on {config.host}:{config.port}: {error.strerror}") from error
    return [listener]
