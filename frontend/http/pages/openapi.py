"""The OpenAPI document: generated from the table of operations and the structs of the bodies."""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from .... import __version__
from ..responses.errors import ErrorBody
from ..routes.table import Operation, Schema

_REF = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")


def openapi_document(operations: Sequence[Operation]) -> bytes:
    """The document as JSON (OpenAPI 3.1)."""
    schemas, components = _components(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = _PARAMETER.sub(r"{\1}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _describe(operation, schemas)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Octavo", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }
    return msgspec.json.encode(document)


def _components(operations: Sequence[Operation]) -> tuple[dict[Schema, dict[str, Any]], dict[str, Any]]:
    kinds: list[Schema] = [ErrorBody]
    for operation in operations:
        kinds += [kind for kind in (operation.body, operation.answer) if kind and kind not in kinds]
    found, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    return dict(zip(kinds, found, strict=True)), components


def _describe(operation: Operation, schemas: dict[Schema, dict[str, Any]]) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    if operation.answer is not None:
        answers["application/json"] = {"schema": schemas[operation.answer]}
    if operation.text:
        answers[operation.text] = {"schema": {"type": "string"}}
    responses: dict[str, Any] = {"200": {"description": "OK", "content": answers}}
    for status in operation.errors:
        content = {"application/json": {"schema": schemas[ErrorBody]}}
        responses[str(status)] = {"description": _phrase(status), "content": content}
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": _identifier(operation),
        "responses": responses,
    }
    if names := _PARAMETER.findall(operation.path):
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if operation.body is not None:
        content = {"application/json": {"schema": schemas[operation.body]}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _phrase(status: int) -> str:
    return "Client Closed Request" if status == 499 else HTTPStatus(status).phrase


def _identifier(operation: Operation) -> str:
    words = re.findall(r"\w+", _PARAMETER.sub(r"by \1", operation.path))
    return "_".join([operation.method.lower(), *words])
