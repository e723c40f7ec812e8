"""/tokenize and /detokenize."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..requests.fields import Endpoint
from ..requests.tokenize import DetokenizeRequest, TokenizeRequest
from ..requests.tools import plain_tools
from ..service import Service
from .chat import template_options
from .intake import Intake, check_ids
from .json_response import json_response


class Tokens(msgspec.Struct):
    """Answer of /tokenize."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None  # as the vocabulary spells them, when asked for


class Detokenized(msgspec.Struct):
    """Answer of /detokenize."""

    prompt: str


class Tokenize:
    """Token ids of a text or of a chat."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.intake = Intake(service, TokenizeRequest, Endpoint.OTHER)

    async def post(self, request: Request) -> Response:
        body = await self.intake.body(request)
        self._service.served_name(body.model)
        ids = await self._encode(body)
        tokenizer = self._service.text.tokenizer
        strings = [tokenizer.id_to_token(token) or "" for token in ids] if body.return_token_strs else None
        return json_response(Tokens(len(ids), self._service.limits.max_model_len, ids, strings))

    async def _encode(self, body: TokenizeRequest) -> list[int]:
        body.check()
        text = self._service.text
        if body.prompt is not None:
            add_special_tokens = body.add_special_tokens is not False
            return (await text.encode([body.prompt], add_special_tokens=add_special_tokens))[0]
        prompt = await text.encode_chat(
            body.plain_messages(),
            tools=plain_tools(body.tools),
            add_special_tokens=bool(body.add_special_tokens),
            **template_options(
                self._service,
                body.chat_template,
                body.chat_template_kwargs,
                add_generation_prompt=body.add_generation_prompt,
                continue_final_message=body.continue_final_message,
            ),
        )
        return prompt.ids


class Detokenize:
    """The text of token ids, special tokens included."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.intake = Intake(service, DetokenizeRequest, Endpoint.OTHER)

    async def post(self, request: Request) -> Response:
        body = await self.intake.body(request)
        self._service.served_name(body.model)
        check_ids(self._service.text, "tokens", body.tokens)
        return json_response(Detokenized(await self._service.text.decode(body.tokens)))
