"""The grammar of an answer that must be calls of tools."""

from collections.abc import Sequence
from typing import Any

from ....protocol.structured import StructuredOutputsParams
from .tools import FunctionSchema, Tool

_DEFINITIONS = ("$defs", "definitions")
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


def named_call(tools: Sequence[Tool], name: str) -> StructuredOutputsParams:
    """The answer is the arguments of the tool called `name`."""
    function = next(tool.function for tool in tools if tool.function.name == name)
    return StructuredOutputsParams(json=_parameters(function))


def required_calls(tools: Sequence[Tool], *, at_most: int | None = None) -> StructuredOutputsParams:
    """The answer is a list of calls of the tools, at least one."""
    definitions: dict[str, Any] = {}
    calls = []
    for number, tool in enumerate(tools):
        move = _Move(str(number))
        arguments = move.moved(_parameters(tool.function))
        definitions |= move.definitions
        calls.append(_object({"name": {"const": tool.function.name}, "arguments": arguments}))
    schema: dict[str, Any] = {"type": "array", "minItems": 1, "items": {"anyOf": calls}}
    if at_most is not None:
        schema["maxItems"] = at_most
    return StructuredOutputsParams(json={**schema, **({"$defs": definitions} if definitions else {})})


def _parameters(function: FunctionSchema) -> dict[str, Any]:
    return function.parameters or _NO_ARGUMENTS


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


class _Move:
    """Puts a schema inside of another: what it refers to becomes definitions of the whole."""

    def __init__(self, prefix: str) -> None:
        """`prefix` tells its definitions from others'."""
        self.definitions: dict[str, Any] = {}
        self._root = f"{prefix}."
        self._needs_root = False

    def moved(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema in its new place."""
        body: dict[str, Any] = self._copy({k: v for k, v in schema.items() if k not in _DEFINITIONS})
        for key in _DEFINITIONS:
            for name, value in (schema.get(key) or {}).items():
                self.definitions[self._root + name] = self._copy(value)
        if self._needs_root:
            self.definitions[self._root] = body
        return body

    def _copy(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._copy(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            key: self._reference(item) if key == "$ref" and isinstance(item, str) else self._copy(item)
            for key, item in value.items()
        }

    def _reference(self, reference: str) -> str:
        if not reference.startswith("#"):
            return reference
        for key in _DEFINITIONS:
            if reference.startswith(own := f"#/{key}/"):
                return f"#/$defs/{self._root}{reference.removeprefix(own)}"
        self._needs_root = True
        return f"#/$defs/{self._root}{reference.removeprefix('#')}"
