"""Many prompts at once, in a plain program."""

from octavo import LLM, SamplingParams

PROMPTS = ["The capital of France is", "Water boils at", "The first president of the United States was"]


def main() -> None:
    with LLM("demo", device="cpu", dtype="float32") as llm:
        for output in llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=12)):
            print(f"{output.prompt!r} -> {output.outputs[0].text!r}")


if __name__ == "__main__":
    main()
