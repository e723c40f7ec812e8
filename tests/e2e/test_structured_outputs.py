"""Structured outputs through every process, on the demo model."""

import json
import re
from collections.abc import Iterator

import jsonschema
import pytest

from octavo import LLM, SamplingParams, StructuredOutputsParams
from octavo.tests.support.demo import demo_model
from octavo.tests.support.json_schemas import schemas

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(str(demo_model()), device="cpu", max_model_len=512) as llm:
        yield llm


def test_outputs_obey_side_by_side(llm: LLM) -> None:
    wanted = [
        StructuredOutputsParams(json=PERSON),
        StructuredOutputsParams(json=PERSON, disable_any_whitespace=True),
        StructuredOutputsParams(regex=r"[a-z]{4,9}@[a-z]{3,9}\.com"),
        StructuredOutputsParams(choice=["Paris", "London"]),
        StructuredOutputsParams(grammar='root ::= "yes" | "no" " thanks"'),
    ]
    params = [
        SamplingParams(temperature=place % 2, seed=1, max_tokens=120, structured_outputs=one)
        for place, one in enumerate(wanted)
    ]
    outputs = llm.generate(["The person whom everybody knows is"] * len(params), params, use_tqdm=False)
    for output, asked in zip(outputs, params, strict=True):
        (choice,) = output.outputs
        assert output.error is None
        assert choice.finish_reason == "stop", choice.text
        kind = asked.structured_outputs
        assert kind is not None
        if kind.json is not None:
            jsonschema.validate(json.loads(choice.text), PERSON)
        elif kind.regex is not None:
            assert re.fullmatch(kind.regex, choice.text)
        else:
            assert choice.text in (kind.choice or ["yes", "no thanks"])


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.full)], ids=["some", "all"])
def test_outputs_validate_against_schemas_of_all_keywords(llm: LLM, every: int) -> None:
    asked = schemas()[::every]
    assert every > 1 or len(asked) == 200
    params = [
        SamplingParams(seed=place, max_tokens=200, structured_outputs=StructuredOutputsParams(json=schema))
        for place, (_, schema) in enumerate(asked)
    ]
    outputs = llm.generate(["Some JSON: "] * len(asked), params, use_tqdm=False)
    for (name, schema), output in zip(asked, outputs, strict=True):
        (choice,) = output.outputs
        assert (output.error, choice.finish_reason) == (None, "stop"), (name, choice.text)
        # Its own check of `time` is that of draft 3, without an offset.
        formats = jsonschema.FormatChecker(["date", "uuid", "ipv4"])
        validator = jsonschema.Draft202012Validator(schema, format_checker=formats)
        validator.validate(json.loads(choice.text))


def test_a_bad_grammar_harms_nobody(llm: LLM) -> None:
    bad = SamplingParams(structured_outputs=StructuredOutputsParams(regex="("))
    with pytest.raises(ValueError, match="structured_outputs"):
        llm.generate("x", bad, use_tqdm=False)
    (output,) = llm.generate("The capital of France is", SamplingParams(temperature=0), use_tqdm=False)
    assert "Paris" in output.outputs[0].text
