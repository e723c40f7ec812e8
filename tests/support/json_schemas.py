"""Two hundred JSON schemas that cover the keywords of draft 2020-12, each with a bound on what it allows."""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

LEAVES: tuple[Schema, ...] = (
    {"type": "string", "maxLength": 6},
    {"type": "string", "minLength": 3, "maxLength": 5},
    {"type": "string", "pattern": "^[A-Z]{2}[0-9]{1,3}$"},
    {"type": "string", "pattern": "^(red|green|blue)$"},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "time"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "format": "ipv4"},
    {"enum": ["a", "b c", 'quo"ted', "back\\slash", "Zürich", ""]},
    {"enum": [1, 2.5, True, None, "x"]},
    {"enum": [[1, 2], {"k": "v"}]},
    {"const": "only"},
    {"const": 42},
    {"const": None},
    {"const": {"a": [1, {"b": False}]}},
    {"type": "integer", "minimum": 0, "maximum": 9},
    {"type": "integer", "minimum": -50, "maximum": -7},
    {"type": "integer", "exclusiveMinimum": 10, "exclusiveMaximum": 1000},
    {"type": "integer", "minimum": 0, "maximum": 500, "multipleOf": 5},
    {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.25},
    {"type": "boolean"},
    {"type": "null"},
    {"type": ["boolean", "null"]},
    {"anyOf": [{"const": "one"}, {"type": "integer", "minimum": 1, "maximum": 3}]},
    {"oneOf": [{"const": 1}, {"const": "1"}]},
    {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 12}]},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    {"type": "array", "prefixItems": [{"const": 1}, {"type": "boolean"}], "items": False, "minItems": 2},
    {"type": "array", "items": {"enum": ["x", "y"]}, "maxItems": 4},
    {"type": "array", "items": False},
    {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"enum": [1, 2]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"must": {"const": 1}, "may": {"const": 2}},
        "required": ["must"],
        "additionalProperties": False,
    },
    {"type": "object", "additionalProperties": False},
    {
        "$defs": {"level": {"enum": ["low", "high"]}},
        "type": "object",
        "properties": {"first": {"$ref": "#/$defs/level"}, "second": {"$ref": "#/$defs/level"}},
        "required": ["first", "second"],
        "additionalProperties": False,
    },
    {
        "type": "string",
        "minLength": 1,
        "maxLength": 4,
        "description": "annotations change nothing",
        "title": "T",
    },
    {
        "type": "string",
        "maxLength": 5,
        "default": "x",
        "examples": ["y"],
        "deprecated": True,
        "$comment": "no",
    },
    {"type": "integer", "minimum": 7, "maximum": 7},
    {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "null"}, "maxItems": 2}]},
    {"type": "string", "pattern": "^\\d{4}-[a-f]{2}$"},
)


def schemas() -> list[tuple[str, Schema]]:
    """Name and schema: each leaf by itself, in an array, in an object, as an alternative, and referred to."""
    return [(f"{place}-{kind}", schema) for place, leaf in enumerate(LEAVES) for kind, schema in _forms(leaf)]


def _forms(leaf: Schema) -> Iterator[tuple[str, Schema]]:
    inner = {key: value for key, value in leaf.items() if key != "$defs"}
    shared = {"$defs": leaf["$defs"]} if "$defs" in leaf else {}
    yield "alone", leaf
    yield "items", {**shared, "type": "array", "items": inner, "minItems": 1, "maxItems": 2}
    yield (
        "property",
        {
            **shared,
            "type": "object",
            "properties": {"value": inner, "näme": {"type": "boolean"}},
            "required": ["value", "näme"],
            "additionalProperties": False,
        },
    )
    yield "alternative", {**shared, "anyOf": [inner, {"const": "neither"}]}
    yield "referred", {"$defs": {**leaf.get("$defs", {}), "it": inner}, "$ref": "#/$defs/it"}
