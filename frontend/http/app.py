"""The ASGI application."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from ...protocol.errors import OctavoError
from .middleware.access import AccessLayer
from .middleware.keys import KeyLayer
from .pages.openapi import openapi_document
from .pages.serve import page_routes
from .responses.errors import http_error, octavo_error
from .routes.table import operations
from .service import Service


def build_app(service: Service) -> Starlette:
    """All routes of a frontend, behind its layers."""
    table = operations(service)
    routes = [Route(entry.path, entry.handler, methods=[entry.method]) for entry in table]
    app = Starlette(
        routes=[*routes, *page_routes(openapi_document(table))],
        middleware=_layers(service),
        exception_handlers={OctavoError: octavo_error, HTTPException: http_error},
    )
    app.router.redirect_slashes = False
    return app


def _layers(service: Service) -> list[Middleware]:
    """From the outermost to the innermost."""
    config = service.config
    layers = [Middleware(AccessLayer, service)]
    if config.allowed_origins:
        # Outside the keys: a browser asks for leave before it sends one.
        layers.append(
            Middleware(
                CORSMiddleware,
                allow_origins=config.allowed_origins,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=["X-Request-Id"],
            )
        )
    if config.api_keys:
        layers.append(Middleware(KeyLayer, config.api_keys, protect_metrics=config.protect_metrics))
    return layers
