"""/health, /health/live, /version."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from .... import __version__
from ..service import Service
from .json_response import json_response


class Health(msgspec.Struct):
    """Answer of a server that is well."""

    status: str = "ok"


class Version(msgspec.Struct):
    """Answer of /version."""

    version: str


class Probes:
    """What probes and load balancers ask."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def ready(self, request: Request) -> Response:
        """200 when a generation could run now."""
        self._service.check_ready()
        return json_response(Health())

    async def live(self, request: Request) -> Response:
        """200 as long as this process answers at all."""
        return json_response(Health())

    async def version(self, request: Request) -> Response:
        return json_response(Version(__version__))
