"""A real model with windows, from a file of 4 to 8 bits: the tokens of transformers, and sensible text."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from ...support.cpu_runner import make_cpu_runner, reference_logits
from ...support.driver import Driver
from ...support.gemma import gemma_model

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

NUM_TOKENS = 24
BOS = 2


@pytest.fixture(scope="module")
def model() -> Path:
    return gemma_model()


def test_greedy_tokens_equal_transformers_beyond_the_window(model: Path) -> None:
    """Prompts of 5 to 700 tokens, the window being 512, whole and in chunks."""
    generator = torch.Generator().manual_seed(0)
    prompts = [
        [BOS, *torch.randint(1000, 200_000, (length - 1,), generator=generator).tolist()]
        for length in (5, 100, 700)
    ]
    driver = Driver(make_cpu_runner(model, cpu_threads=2))
    outputs = driver.generate([driver.add(prompt) for prompt in prompts], NUM_TOKENS)
    assert driver.generate([driver.add(prompt) for prompt in prompts], NUM_TOKENS, 64) == outputs
    for prompt, output in zip(prompts, outputs, strict=True):
        truth = reference_logits(model, prompt + output)[len(prompt) - 1 : -1]
        assert output == truth.argmax(-1).tolist()


def test_text_is_sensible(model: Path) -> None:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    ids = [BOS, *tokenizer.encode("The capital of France is", add_special_tokens=False).ids]
    driver = Driver(make_cpu_runner(model, cpu_threads=2, dtype="bfloat16"))
    text = tokenizer.decode(driver.generate([driver.add(ids)], NUM_TOKENS)[0])
    assert "France" in text
