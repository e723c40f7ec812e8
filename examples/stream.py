"""Text on the screen as it is generated."""

from octavo import LLM, SamplingParams


def main() -> None:
    with LLM("demo", device="cpu", dtype="float32") as llm:
        params = SamplingParams(temperature=0, max_tokens=24, stream=True)
        for piece in llm.generate("The capital of France is", params):
            print(piece.outputs[0].text, end="", flush=True)
        print()


if __name__ == "__main__":
    main()
