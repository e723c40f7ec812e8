"""/generate: plain text for plain clients."""

from starlette.requests import Request
from starlette.responses import Response

from ....protocol.errors import InvalidRequestError
from ..generation.respond import GenerationResponse
from ..generation.run import Generation
from ..middleware.access import request_name
from ..requests.fields import Endpoint
from ..requests.generate import GenerateRequest
from ..responses.text import TextFormat
from ..service import Service
from .intake import Intake, make_jobs


class Generate:
    """Goes on from a prompt, in the simplest form."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.intake = Intake(service, GenerateRequest, Endpoint.OTHER)

    async def post(self, request: Request) -> Response:
        service = self._service
        body = await self.intake.body(request)
        service.served_name(body.model)
        service.check_ready()
        params = body.params(service.config.request_timeout)
        add_special_tokens = body.add_special_tokens is not False
        ids = await service.text.encode(body.prompts(), add_special_tokens=add_special_tokens)
        if body.stream and len(ids) * params.n > 1:
            raise InvalidRequestError("a stream of plain text has room for one choice only", param="stream")
        jobs = make_jobs(service, request, body, ids, params)
        generation = Generation(service.engine, jobs, service.metrics)
        name = request_name(request.scope)
        return GenerationResponse(generation, TextFormat(), name, stream=bool(body.stream))
