"""/v1/chat/completions."""

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ....protocol.errors import InvalidRequestError, UnsupportedError
from ...text.answer.plan import AnswerPlan
from ..generation.respond import GenerationResponse
from ..generation.run import Generation
from ..middleware.access import request_name
from ..requests.chat import ChatRequest
from ..requests.fields import Endpoint
from ..requests.tools import ToolChoice, plain_tools, usable_tools
from ..responses.chat import ChatFormat
from ..service import Service
from ..text_service import TextService
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
        plan = answer_plan(service.text, body, choice, prompt.text)
        if plan.special_tokens:
            params.skip_special_tokens = False
        jobs = make_jobs(service, request, body, [prompt.ids], params)
        name = request_name(request.scope)
        form = ChatFormat(
            f"chatcmpl-{name}",
            model,
            int(time.time()),
            service.text.tokenizer,
            num_choices=params.n,
            options=body.stream_options,
            with_logprobs=params.logprobs is not None,
            plan=plan,
        )
        generation = Generation(service.engine, jobs, service.metrics)
        return GenerationResponse(generation, form, name, stream=bool(body.stream))


def answer_plan(text: TextService, body: ChatRequest, choice: ToolChoice | str, prompt: str) -> AnswerPlan:
    """What to look for in the answers to `prompt`. Raises UnsupportedError where the model calls no tools."""
    style = text.style(body.chat_template, has_tools=choice is not ToolChoice.NONE)
    if choice is ToolChoice.AUTO and style.tools is None:
        raise UnsupportedError(
            "the model's chat template does not show how it calls tools; the server's owner can say so with "
            "--tool-call-parser",
            param="tools",
        )
    if choice not in (ToolChoice.AUTO, ToolChoice.NONE):
        raise UnsupportedError("this server cannot make a model call a tool", param="tool_choice")
    reasoning = style.reasoning
    return AnswerPlan(
        tools=style.tools if choice is ToolChoice.AUTO else None,
        names=frozenset(tool.function.name for tool in body.tools or ()),
        max_calls=1 if body.parallel_tool_calls is False else None,
        reasoning=reasoning,
        opened=reasoning is not None and prompt.rstrip().endswith(reasoning.opening),
        shows_reasoning=body.include_reasoning is not False,
    )


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
