"""/metrics."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from ..metrics.page import CONTENT_TYPE, metrics_page
from ..service import Service


class Metrics:
    """The numbers of all processes of the server."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def get(self, request: Request) -> Response:
        service = self._service
        service.metrics.flush()
        page = await asyncio.to_thread(
            metrics_page, service.registry, service.metrics_dir, service.config.metrics_prefix
        )
        return Response(page, media_type=CONTENT_TYPE)
