"""The demo model beside transformers: 20 prompts of 1 to 700 tokens, alone and together."""

from pathlib import Path

import pytest
import torch

from octavo.frontend.demo import ensure_demo_model

from ..support.cpu_runner import make_cpu_runner, reference_logits
from ..support.driver import Driver

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

LENGTHS = [1, 2, 3, 7, 15, 16, 17, 31, 33, 48, 63, 64, 65, 100, 129, 200, 256, 333, 512, 700]
NUM_TOKENS = 16
TIE = 0.25  # of a logit: half a unit in the last place of bfloat16 at 32 is 0.125, on either side


@pytest.fixture(scope="module")
def model() -> Path:
    return ensure_demo_model(progress=False)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(0, 49152, (n,), generator=generator).tolist() for n in LENGTHS]


def gaps(model: Path, prompt: list[int], output: list[int]) -> torch.Tensor:
    """How far each output token's logit lies below the greatest, in transformers in float32."""
    logits = reference_logits(model, prompt + output)[len(prompt) - 1 : -1]
    return logits.amax(-1) - logits.gather(1, torch.tensor(output).unsqueeze(1)).squeeze(1)


@pytest.fixture(scope="module")
def expected(model: Path, prompts: list[list[int]]) -> list[list[int]]:
    """Greedy tokens of the runner with prompts read whole, each checked against transformers."""
    driver = Driver(make_cpu_runner(model, cpu_threads=1))
    outputs = driver.generate([driver.add(prompt) for prompt in prompts], NUM_TOKENS)
    for prompt, output in zip(prompts, outputs, strict=True):
        assert float(gaps(model, prompt, output).max()) == 0.0
    return outputs


@pytest.mark.parametrize(("block_size", "chunk"), [(64, 1 << 30), (16, 16)])
def test_greedy_tokens_equal_transformers(
    model: Path, prompts: list[list[int]], expected: list[list[int]], block_size: int, chunk: int
) -> None:
    driver = Driver(make_cpu_runner(model, block_size=block_size, cpu_threads=1))
    assert driver.generate([driver.add(prompt) for prompt in prompts], NUM_TOKENS, chunk) == expected
    for prompt, output in list(zip(prompts, expected, strict=True))[::4]:
        assert driver.generate([driver.add(prompt)], NUM_TOKENS)[0] == output


def test_a_prefix_hit_gives_the_tokens_of_a_miss(
    model: Path, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    driver = Driver(make_cpu_runner(model, cpu_threads=1))
    first = driver.add(prompts[-1])
    driver.step()
    hit = driver.add(prompts[-1], shared=first, num_shared=688)
    assert driver.generate([hit], NUM_TOKENS)[0] == expected[-1]


def test_bfloat16_tokens_equal_float32_up_to_ties(model: Path, prompts: list[list[int]]) -> None:
    driver = Driver(make_cpu_runner(model, dtype="bfloat16", cpu_threads=1))
    outputs = driver.generate([driver.add(prompt) for prompt in prompts], NUM_TOKENS)
    worst = max(float(gaps(model, *pair).max()) for pair in zip(prompts, outputs, strict=True))
    assert worst < TIE
