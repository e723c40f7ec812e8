"""A thousand prompts through `LLM.generate`: outputs in order, a bar that counts them, memory that stays."""

import psutil
import pytest

from octavo import LLM, SamplingParams
from octavo.tests.support.demo import demo_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NUM_PROMPTS = 1000
MIB = 1 << 20


def memory() -> int:
    """Resident bytes of this program and of all processes of its engine."""
    own = psutil.Process()
    total: int = sum(one.memory_info().rss for one in [own, *own.children(recursive=True)])
    return total


def check_a_round(llm: LLM, capfd: pytest.CaptureFixture[str]) -> list[list[int]]:
    """Prompts of unequal lengths, with answers of unequal lengths so that they end out of order."""
    prompts = [f"{number} is a number, and " + "so on, " * (number % 5) for number in range(NUM_PROMPTS)]
    params = [
        SamplingParams(temperature=0, max_tokens=1 + (NUM_PROMPTS - number) % 8, ignore_eos=True)
        for number in range(NUM_PROMPTS)
    ]
    outputs = llm.generate(prompts, params)
    assert [output.prompt for output in outputs] == prompts
    answers = [list(output.outputs[0].token_ids) for output in outputs]
    assert [len(answer) for answer in answers] == [one.max_tokens for one in params]
    bar = capfd.readouterr().err
    assert f" 0/{NUM_PROMPTS} " in bar
    assert f" {NUM_PROMPTS}/{NUM_PROMPTS} " in bar
    return answers


def check_rounds(device: str, rounds: int, capfd: pytest.CaptureFixture[str]) -> None:
    with LLM(str(demo_model()), device=device, dtype="float32", max_model_len=512) as llm:
        first = check_a_round(llm, capfd)
        before = memory()
        for _ in range(rounds):
            assert check_a_round(llm, capfd) == first
        growth = memory() - before
    with capfd.disabled():
        print(f"\n{rounds} more rounds: {growth / MIB:+.1f} MiB of {before / MIB:.0f}")
    assert growth < before // 20


def test_a_thousand_prompts_without_a_model(capfd: pytest.CaptureFixture[str]) -> None:
    check_rounds("sim", 2, capfd)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_thousand_prompts(capfd: pytest.CaptureFixture[str]) -> None:
    check_rounds("cpu", 2, capfd)
