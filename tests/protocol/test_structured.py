"""What structured outputs may ask for, checked without compiling anything."""

import json

import msgspec
import pytest

from octavo.protocol.errors import InvalidRequestError
from octavo.protocol.sampling import SamplingParams
from octavo.protocol.structured import (
    MAX_GRAMMAR_LENGTH,
    MAX_REGEX_LENGTH,
    MAX_SCHEMA_LENGTH,
    StructuredOutputsParams,
)

DEEP = "[" * 100_000


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"json_object": False},
        {"json": {"type": "object"}, "regex": "a"},
        {"json": '{"type"'},
        {"json": "[]"},
        {"json": DEEP},
        {"json": {"type": {1, 2}}},
        {"json": 3},
        {"json": {"description": "x" * MAX_SCHEMA_LENGTH}},
        {"json": {"pattern": "a" * (MAX_REGEX_LENGTH + 1)}},
        {"json": {"anyOf": [{"pattern": "a" * (MAX_REGEX_LENGTH // 2)}] * 5}},
        {"json": {"patternProperties": {"a" * (MAX_REGEX_LENGTH + 1): {}}}},
        {"json_object": "yes"},
        {"regex": ""},
        {"regex": 3},
        {"regex": "a" * (MAX_REGEX_LENGTH + 1)},
        {"regex": "\ud800"},
        {"choice": []},
        {"choice": "a"},
        {"choice": ["a", ""]},
        {"choice": ["a", 3]},
        {"choice": ["a" * 100] * (MAX_SCHEMA_LENGTH // 100 + 1)},
        {"grammar": " \n"},
        {"grammar": "start: " + "a" * MAX_GRAMMAR_LENGTH},
        {"json_object": True, "disable_any_whitespace": "no"},
        {"json_object": True, "whitespace_pattern": ""},
    ],
    ids=lambda fields: " ".join(fields) or "nothing",
)
def test_a_wrong_form_is_refused_by_name(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        StructuredOutputsParams(**fields)  # type: ignore[arg-type]
    assert caught.value.param == "structured_outputs"
    assert len(str(caught.value)) < 3 * MAX_SCHEMA_LENGTH


def test_only_structured_outputs_are_structured_outputs() -> None:
    with pytest.raises(ValueError, match="structured_outputs must be a StructuredOutputsParams"):
        SamplingParams(structured_outputs={"regex": "a"})  # type: ignore[arg-type]


def test_what_is_changed_after_construction_is_seen_at_the_next_door() -> None:
    params = SamplingParams(structured_outputs=StructuredOutputsParams(regex="a"))
    assert params.structured_outputs is not None
    params.structured_outputs.json_object = True
    with pytest.raises(InvalidRequestError, match="exactly one"):
        params.validate()


def test_a_schema_travels_as_text() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    params = SamplingParams(structured_outputs=StructuredOutputsParams(json=schema))
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams)
    assert received == params
    assert received.structured_outputs is not None
    assert isinstance(received.structured_outputs.json, str)
    assert json.loads(received.structured_outputs.json) == schema


def test_a_foreign_client_may_send_a_schema_as_a_map() -> None:
    frame = msgspec.msgpack.encode({"structured_outputs": {"json": {"type": "object"}}})
    received = msgspec.msgpack.decode(frame, type=SamplingParams)
    assert received.structured_outputs == StructuredOutputsParams(json='{"type": "object"}')


def test_objects_are_closed_where_that_is_asked_for() -> None:
    schema = {
        "properties": {"a": {"properties": {}}, "b": {"properties": {}, "additionalProperties": True}},
        "items": [{"properties": {}, "patternProperties": {"x": {}}}],
    }
    wanted = StructuredOutputsParams(json=schema, disable_additional_properties=True)
    (grammar,) = json.loads(wanted.to_llguidance())["grammars"]
    closed = grammar["json_schema"]
    assert closed["additionalProperties"] is False
    assert closed["properties"]["a"]["additionalProperties"] is False
    assert closed["properties"]["b"]["additionalProperties"] is True
    assert "additionalProperties" not in closed["items"][0]
