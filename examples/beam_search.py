"""The likeliest continuations of a prompt, best first."""

from octavo import LLM, BeamSearchParams


def main() -> None:
    with LLM("demo", device="cpu", dtype="float32") as llm:
        params = BeamSearchParams(beam_width=3, max_tokens=8)
        for output in llm.beam_search(["The capital of France is", "Water boils at"], params):
            for sequence in output.sequences:
                print(f"{sequence.cum_logprob:7.2f} {sequence.text!r}")


if __name__ == "__main__":
    main()
