"""Several answers to one prompt. The prompt is read once, and a seed makes them the same each time."""

from octavo import LLM, SamplingParams


def main() -> None:
    with LLM("demo", device="cpu", dtype="float32") as llm:
        params = SamplingParams(n=4, temperature=0.7, top_p=0.9, seed=7, max_tokens=12)
        (output,) = llm.generate("The capital of France is", params)
        for choice in output.outputs:
            print(f"{choice.index}: {choice.text!r}")


if __name__ == "__main__":
    main()
