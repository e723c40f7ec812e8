"""From an HTTP request to a decoded body and to jobs: what all endpoints have in common."""

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec
from starlette.requests import Request

from ....protocol.errors import InvalidRequestError
from ....protocol.sampling import SamplingParams
from ....protocol.validation import check_prompt
from ..body import read_json_body
from ..generation.job import Job
from ..middleware.access import arrival, name_request, request_name, usable_name
from ..middleware.keys import key_name
from ..requests.decode import BodyDecoder
from ..requests.fields import Endpoint
from ..requests.sampling import GenerationRequest
from ..service import Service
from ..text_service import TextService

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


def check_ids(text: TextService, name: str, ids: Sequence[int]) -> None:
    """Raises InvalidRequestError for ids that the model does not have."""
    highest = text.tokenizer.vocab_size - 1
    wrong = next((token for token in ids if not 0 <= token <= highest), None)
    if wrong is not None:
        raise InvalidRequestError(f"{name} must hold token ids in [0, {highest}], got {wrong}", param=name)


def make_jobs(
    service: Service,
    request: Request,
    body: GenerationRequest,
    prompts: Sequence[list[int]],
    params: SamplingParams,
    echoes: Sequence[str] = (),
) -> list[Job]:
    """A job for each prompt; `echoes` are the texts that their choices begin with.

    Raises InvalidRequestError for a prompt that is too long or empty.
    """
    if (given := usable_name(body.request_id)) is not None:
        name_request(request.scope, given)
    name = request_name(request.scope)
    keep = body.truncate_prompt_tokens
    if keep is not None and keep < 1:
        keep = max(1, service.limits.max_model_len - (params.max_tokens or 1))
    if keep is not None:
        prompts = [prompt[-keep:] for prompt in prompts]
    for prompt in prompts:
        # Known before millions of ids are looked at: the check of the ids themselves comes with submission.
        check_prompt(service.limits, len(prompt), 0, 0)
    return [
        Job(
            name=name if len(prompts) == 1 else f"{name}-{index}",
            prompt_ids=prompt,
            params=params,
            arrived=arrival(request.scope),
            priority=body.priority or 0,
            user=key_name(request.scope) or body.user or "",
            cache_salt=body.cache_salt or "",
            grammar_field=body.grammar_field,
            echo=echoes[index] if echoes else "",
        )
        for index, prompt in enumerate(prompts)
    ]
