"""/v1/chat/completions."""

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ....protocol.errors import InvalidRequestError
from ..generation.respond import GenerationResponse
from ..generation.run import Generation
from ..middleware.access import request_name
from ..requests.chat import ChatRequest
from ..requests.fields import Endpoint
from ..requests.tools import plain_tools, usable_tools
from ..responses.chat import ChatFormat
from ..service import Service
from .chat_plan import begin_answer, plan_answer
from .intake import Intake, make_jobs


class Chat:
    """Goes on from a chat."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.intake = Intake(service, ChatRequest, Endpoint.CHAT)

    async def post(self, request: Request) -> Response:
        service = self._service
        body = await self.intake.body(request)
        model = service.served_name(body.model)
        service.check_ready()
        params = body.params(service.config.request_timeout)
        tools, choice = usable_tools(body.tools, body.tool_choice)
        prompt = await service.text.encode_chat(
            body.plain_messages(),
            add_special_tokens=bool(body.add_special_tokens),
            documents=body.documents,
            tools=plain_tools(tools),
            **template_options(
                service,
                body.chat_template,
                body.chat_template_kwargs,
                add_generation_prompt=body.add_generation_prompt,
                continue_final_message=body.continue_final_message,
            ),
        )
        style = service.text.style(body.chat_template, has_tools=bool(tools))
        plan = plan_answer(style, body, tools, choice, params)
        plan, ids = begin_answer(plan, prompt, params, service.text.tokenizer)
        jobs = make_jobs(service, request, body, [ids], params)
        name = request_name(request.scope)
        form = ChatFormat(
            f"chatcmpl-{name}",
            model,
            int(time.time()),
            service.text.tokenizer,
            num_choices=params.n,
            options=body.stream_options,
            with_logprobs=params.logprobs is not None,
            prompt_logprobs=body.prompt_logprobs,
            plan=plan,
        )
        generation = Generation(service.engine, jobs, service.metrics)
        return GenerationResponse(generation, form, name, stream=bool(body.stream))


def template_options(
    service: Service,
    template: str | None,
    variables: dict[str, Any] | None,
    *,
    add_generation_prompt: bool | None,
    continue_final_message: bool | None,
) -> dict[str, Any]:
    """How a chat is rendered. Raises InvalidRequestError for a template that the server does not trust."""
    trusted = service.config.trust_request_chat_template or template in service.text.template_names
    if template is not None and not trusted:
        raise InvalidRequestError(
            "this server does not render chat templates that a request brings; chat_template may name one "
            f"of the model's own: {', '.join(service.text.template_names) or 'it has none'}",
            param="chat_template",
        )
    continued = bool(continue_final_message)
    return {
        "template": template,
        "variables": variables,
        "continue_final_message": continued,
        "add_generation_prompt": not continued if add_generation_prompt is None else add_generation_prompt,
    }
