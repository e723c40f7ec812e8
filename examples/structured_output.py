"""An answer that obeys a JSON schema, whatever the model would have liked to say."""

import json

from octavo import LLM, SamplingParams, StructuredOutputsParams

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", "Rome"]},
        "population": {"type": "integer", "minimum": 1, "maximum": 99_999_999},
    },
    "required": ["city", "population"],
    "additionalProperties": False,
}


def main() -> None:
    with LLM("demo", device="cpu", dtype="float32") as llm:
        schema = StructuredOutputsParams(json=SCHEMA)
        params = SamplingParams(temperature=0, max_tokens=64, structured_outputs=schema)
        question = {"role": "user", "content": "What is the capital of France, and how large is it?"}
        (output,) = llm.chat([question], params)
        print(json.loads(output.outputs[0].text))


if __name__ == "__main__":
    main()
