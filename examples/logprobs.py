"""How sure the model was of each token, and of what it might have said instead."""

from octavo import LLM, SamplingParams


def main() -> None:
    with LLM("demo", device="cpu", dtype="float32") as llm:
        params = SamplingParams(temperature=0, max_tokens=4, logprobs=3, prompt_logprobs=0)
        (output,) = llm.generate("The capital of France is", params)
        choice = output.outputs[0]
        for token, entries in zip(choice.token_ids, choice.logprobs or [], strict=True):
            others = ", ".join(f"{entry.decoded_token!r} {entry.logprob:.2f}" for entry in entries.values())
            print(f"{entries[token].decoded_token!r} of {others}")
        given = [entry for entries in output.prompt_logprobs or [] if entries for entry in entries.values()]
        print(f"the prompt itself: {sum(entry.logprob for entry in given):.2f}")


if __name__ == "__main__":
    main()
