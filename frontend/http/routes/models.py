"""/v1/models."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..service import Service
from .json_response import json_response


class ModelCard(msgspec.Struct, kw_only=True):
    """A name under which the model is served."""

    id: str
    object: str = "model"
    created: int  # seconds since the epoch
    max_model_len: int | None  # tokens of prompt and output; None before the scheduler is known
    owned_by: str = "octavo"


class ModelList(msgspec.Struct, kw_only=True):
    """All names."""

    object: str = "list"
    data: list[ModelCard]


class Models:
    """The model under each of its names."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def list(self, request: Request) -> Response:
        names = self._service.config.served_names
        return json_response(ModelList(data=[self._card(name) for name in names]))

    async def one(self, request: Request) -> Response:
        return json_response(self._card(self._service.served_name(request.path_params["model"])))

    def _card(self, name: str) -> ModelCard:
        return ModelCard(id=name, created=self._service.started, max_model_len=self._service.max_model_len)
