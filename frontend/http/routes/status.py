"""/status: what the front page shows."""

import time
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from .... import __version__
from ....protocol.errors import EngineUnavailableError
from ....protocol.replies import EngineStats
from ...supervisor.published import FILE_NAME, ServerInfo
from ..metrics.recent import RecentRequest
from ..service import Service
from .json_response import json_response


class Status(msgspec.Struct, kw_only=True):
    """The server at this moment, as this frontend sees it."""

    ready: bool  # a generation could run now
    reason: str  # why not
    version: str
    models: list[str]
    uptime: float  # seconds that this frontend has run
    engine: dict[str, int] | None  # the scheduler's gauges; None while it does not answer
    processes: dict[str, int]  # pid of each process by its role
    recent: list[RecentRequest]  # that ended at this frontend, the latest first


class ServerStatus:
    """Gauges and recent requests, for people."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def get(self, request: Request) -> Response:
        service = self._service
        reason = service.unready
        status = Status(
            ready=reason is None,
            reason=reason or "",
            version=__version__,
            models=list(service.config.served_names),
            uptime=time.time() - service.started,
            engine=await self._engine(),
            processes=_processes(Path(service.config.run_dir)),
            recent=service.metrics.recent.latest(),
        )
        return json_response(status)

    async def _engine(self) -> dict[str, int] | None:
        try:
            return _plain(await self._service.engine.stats())
        except EngineUnavailableError:
            return None


def _plain(stats: EngineStats) -> dict[str, int]:
    return {name: getattr(stats, name) for name in stats.__struct_fields__}


def _processes(run_dir: Path) -> dict[str, int]:
    """As the supervisor published them; a frontend that nobody supervises knows none."""
    try:
        return msgspec.json.decode((run_dir / FILE_NAME).read_bytes(), type=ServerInfo).processes
    except FileNotFoundError:
        return {}
