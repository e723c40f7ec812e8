"""A loop of one's own: requests join while others run, and every step shows what changed."""

from octavo import EngineArgs, LLMEngine, SamplingParams

PROMPTS = ["The capital of France is", "Water boils at", "Once upon a time"]


def main() -> None:
    with LLMEngine(EngineArgs(model="demo", device="cpu", dtype="float32")) as engine:
        waiting = list(enumerate(PROMPTS))
        while waiting or engine.has_unfinished_requests():
            if waiting:
                number, prompt = waiting.pop(0)
                engine.add_request(str(number), prompt, SamplingParams(temperature=0, max_tokens=12))
            for output in engine.step():
                if output.finished:
                    print(f"{output.request_id}: {output.prompt}{output.outputs[0].text}")


if __name__ == "__main__":
    main()
