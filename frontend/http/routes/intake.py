"""From an HTTP request to a decoded body and to jobs: what all endpoints have in common."""

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec
from starlette.requests import Request

from ....protocol.sampling import SamplingParams
from ..body import read_json_body
from ..generation.job import Job
from ..middleware.access import arrival, name_request, request_name, usable_name
from ..requests.decode import BodyDecoder
from ..requests.fields import Endpoint
from ..requests.sampling import GenerationRequest
from ..service import Service

T = TypeVar("T", bound=msgspec.Struct)


class Intake(Generic[T]):
    """Reads and decodes the bodies of one endpoint."""

    def __init__(self, service: Service, schema: type[T], endpoint: Endpoint) -> None:
        self._service = service
        self.decoder = BodyDecoder(
            schema, endpoint, ignore_unknown_fields=service.config.ignore_unknown_fields
        )

    async def body(self, request: Request) -> T:
        """The decoded body. Raises InvalidRequestError."""
        return self.decoder.decode(await read_json_body(request, self._service.config.max_body_bytes))


def make_jobs(
    service: Service,
    request: Request,
    body: GenerationRequest,
    prompts: Sequence[list[int]],
    params: SamplingParams,
    echoes: Sequence[str] = (),
) -> list[Job]:
    """A job for each prompt; `echoes` are the texts that their choices begin with."""
    if (given := usable_name(body.request_id)) is not None:
        name_request(request.scope, given)
    name = request_name(request.scope)
    keep = body.truncate_prompt_tokens
    if keep is not None and keep < 1:
        keep = max(1, service.limits.max_model_len - (params.max_tokens or 1))
    return [
        Job(
            name=name if len(prompts) == 1 else f"{name}-{index}",
            prompt_ids=prompt if keep is None else prompt[-keep:],
            params=params,
            arrived=arrival(request.scope),
            priority=body.priority or 0,
            user=body.user or "",
            cache_salt=body.cache_salt or "",
            echo=echoes[index] if echoes else "",
        )
        for index, prompt in enumerate(prompts)
    ]
