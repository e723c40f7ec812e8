"""/v1/completions."""

import time
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from ..generation.respond import GenerationResponse
from ..generation.run import Generation
from ..middleware.access import request_name
from ..requests.completions import CompletionRequest
from ..requests.fields import Endpoint
from ..requests.prompts import Prompt, parse_prompts
from ..responses.completions import CompletionFormat
from ..service import Service
from .intake import Intake, check_ids, make_jobs


class Completions:
    """Goes on from one or several texts."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.intake = Intake(service, CompletionRequest, Endpoint.COMPLETIONS)

    async def post(self, request: Request) -> Response:
        service = self._service
        body = await self.intake.body(request)
        model = service.served_name(body.model)
        service.check_ready()
        params = body.params(service.config.request_timeout)
        prompts = parse_prompts(body.prompt)
        add_special_tokens = body.add_special_tokens is not False
        ids = await service.text.encode(prompts, add_special_tokens=add_special_tokens)
        echoes = [await self._text_of(prompt) for prompt in prompts] if body.echo else ()
        echo_logprobs = body.logprobs if body.echo else None
        jobs = [
            replace(job, echo_logprobs=echo_logprobs, only_prompt=body.max_tokens == 0)
            for job in make_jobs(service, request, body, ids, params, echoes)
        ]
        name = request_name(request.scope)
        form = CompletionFormat(
            f"cmpl-{name}",
            model,
            int(time.time()),
            service.text.tokenizer,
            options=body.stream_options,
            skip_special_tokens=params.skip_special_tokens,
            with_logprobs=params.logprobs is not None,
            with_token_ids=bool(body.return_token_ids),
            prompt_logprobs=body.prompt_logprobs,
        )
        generation = Generation(service.engine, jobs, service.metrics)
        return GenerationResponse(generation, form, name, stream=bool(body.stream))

    async def _text_of(self, prompt: Prompt) -> str:
        if isinstance(prompt, str):
            return prompt
        check_ids(self._service.text, "prompt", prompt)
        return await self._service.text.decode(prompt)
