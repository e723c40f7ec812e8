"""The table of operations: what is served where. Routes and the OpenAPI document are both made from it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..responses.chat import ChatCompletion
from ..responses.completions import Completion
from ..responses.text import Texts
from ..service import Service
from .chat import Chat
from .completions import Completions
from .debug import Debug
from .generate import Generate
from .health import Health, Probes, Version
from .metrics import Metrics
from .models import ModelCard, ModelList, Models
from .status import ServerStatus, Status
from .tokenize import Detokenize, Detokenized, Tokenize, Tokens

Handler = Callable[[Request], Awaitable[Response]]
Schema = type[msgspec.Struct]

_EVENTS, _TEXT = "text/event-stream", "text/plain"
_BODY_ERRORS = (400, 401, 404, 413, 415, 500, 503)
_GENERATION_ERRORS = (*_BODY_ERRORS, 429, 499, 504)


@dataclass(frozen=True)
class Operation:
    """A method of a path."""

    method: str
    path: str
    handler: Handler
    summary: str
    body: Schema | None = None  # of the request
    answer: Schema | None = None  # JSON body of status 200
    text: str = ""  # media type of another form of the answer
    errors: tuple[int, ...] = (401, 500)


def operations(service: Service) -> list[Operation]:
    """All operations, in the order the document lists them."""
    return [*_generation(service), *_text(service), *_models(service), *_operation(service)]


def _generation(service: Service) -> list[Operation]:
    completions, chat, generate = Completions(service), Chat(service), Generate(service)
    return [
        Operation(
            "POST",
            "/v1/completions",
            completions.post,
            "Go on from one or several texts.",
            completions.intake.decoder.accepted,
            Completion,
            _EVENTS,
            _GENERATION_ERRORS,
        ),
        Operation(
            "POST",
            "/v1/chat/completions",
            chat.post,
            "Go on from a chat.",
            chat.intake.decoder.accepted,
            ChatCompletion,
            _EVENTS,
            _GENERATION_ERRORS,
        ),
        Operation(
            "POST",
            "/generate",
            generate.post,
            "Go on from a prompt; with stream the answer is the text itself.",
            generate.intake.decoder.accepted,
            Texts,
            _TEXT,
            _GENERATION_ERRORS,
        ),
    ]


def _text(service: Service) -> list[Operation]:
    tokenize, detokenize = Tokenize(service), Detokenize(service)
    return [
        Operation(
            "POST",
            "/tokenize",
            tokenize.post,
            "Token ids of a text or of a chat.",
            tokenize.intake.decoder.accepted,
            Tokens,
            errors=_BODY_ERRORS,
        ),
        Operation(
            "POST",
            "/detokenize",
            detokenize.post,
            "The text of token ids.",
            detokenize.intake.decoder.accepted,
            Detokenized,
            errors=_BODY_ERRORS,
        ),
    ]


def _models(service: Service) -> list[Operation]:
    models = Models(service)
    return [
        Operation(
            "GET", "/v1/models", models.list, "The names under which the model is served.", answer=ModelList
        ),
        Operation(
            "GET",
            "/v1/models/{model:path}",
            models.one,
            "One of these names.",
            answer=ModelCard,
            errors=(401, 404, 500),
        ),
    ]


def _operation(service: Service) -> list[Operation]:
    probes, metrics, debug = Probes(service), Metrics(service), Debug(service)
    status = ServerStatus(service)
    return [
        Operation(
            "GET",
            "/health",
            probes.ready,
            "Whether a generation could run now.",
            answer=Health,
            errors=(500, 503),
        ),
        Operation(
            "GET", "/health/live", probes.live, "Whether this process lives.", answer=Health, errors=(500,)
        ),
        Operation("GET", "/version", probes.version, "The server's version.", answer=Version),
        Operation("GET", "/status", status.get, "What the front page shows.", answer=Status),
        Operation("GET", "/metrics", metrics.get, "Metrics for Prometheus.", text=_TEXT),
        Operation(
            "GET",
            "/debug/requests/{name}",
            debug.story,
            "What happened to a request, in words.",
            text=_TEXT,
            errors=(401, 404, 500, 503),
        ),
    ]
