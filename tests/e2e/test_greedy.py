"""Greedy answers through every process equal transformers' on the same weights, however the work is cut."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from octavo.tests.support.client import Client
from octavo.tests.support.demo import demo_model
from octavo.tests.support.models import make_ctx_model
from octavo.tests.support.reference import all_logits, greedy_ids
from octavo.tests.support.server import start_server

pytestmark = pytest.mark.e2e

MAX_TOKENS = 24
LONG_ANSWER = 96  # long enough for requests that came one after the other to outgrow a tiny pool together
# bfloat16 has 8 bits of precision: neighbours around 25 are 0.125 apart, and 30 layers add to it.
BF16_TIE = 0.5

CUTS = {
    "block16": ("--block-size", "16"),
    "block64": ("--block-size", "64"),
    "chunks": ("--max-num-batched-tokens", "16", "--block-size", "16"),
    "tiny-pool": ("--block-size", "16", "--num-gpu-blocks-override", "60", "--no-enable-prefix-caching"),
}


def lengths(count: int, longest: int) -> list[int]:
    """`count` lengths from 1 to `longest`, the edges of blocks among them."""
    edges = [1, 2, 15, 16, 17, 31, 32, 33, 64, 65, longest]
    rng = random.Random(0)
    return sorted((edges + [rng.randrange(1, longest) for _ in range(count)])[:count])


def prompts(count: int, longest: int, vocab: int) -> list[list[int]]:
    rng = random.Random(1)
    return [[rng.randrange(5, vocab) for _ in range(length)] for length in lengths(count, longest)]


@pytest.fixture(scope="module")
def ctx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ctx_model(tmp_path_factory.mktemp("ctx"))


@contextmanager
def served(model: Path, dtype: str, *flags: str) -> Iterator[Client]:
    server = start_server(model, "--device", "cpu", "--dtype", dtype, "--max-model-len", "1024", *flags)
    client = Client(server.url, timeout=600)
    try:
        yield client
    finally:
        client.close()
        server.stop()


def ask(client: Client, prompt: list[int], max_tokens: int = MAX_TOKENS) -> list[int]:
    body = client.complete(prompt, max_tokens=max_tokens, ignore_eos=True, return_token_ids=True)
    tokens: list[int] = body["choices"][0]["token_ids"]
    return tokens


def check_alone_and_together(model: Path, cut: str, cases: list[list[int]]) -> None:
    """Each prompt alone, then 32 at once, of which some come a second time."""
    max_tokens = LONG_ANSWER if cut == "tiny-pool" else MAX_TOKENS
    expected = [greedy_ids(model, prompt, max_tokens) for prompt in cases]
    again = 32 - len(cases)
    with served(model, "float32", *CUTS[cut]) as client:
        assert [ask(client, prompt, max_tokens) for prompt in cases] == expected
        if cut == "tiny-pool":
            client.teach_short_answers(300)
        with ThreadPoolExecutor(32) as pool:
            together = list(
                pool.map(lambda prompt: ask(client, prompt, max_tokens), [*cases, *cases[:again]])
            )
        assert together == [*expected, *expected[:again]]
        if cut == "tiny-pool":
            assert client.metric("octavo_num_preemptions_total") > 0
        else:
            assert client.metric("octavo_prefix_cache_hits_total") > 0


@pytest.mark.parametrize("cut", CUTS)
def test_ctx_model_alone_and_together(ctx: Path, cut: str) -> None:
    check_alone_and_together(ctx, cut, prompts(16, 500, 250))


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("cut", CUTS)
def test_ctx_model_with_long_prompts(ctx: Path, cut: str) -> None:
    check_alone_and_together(ctx, cut, prompts(20, 700, 250))


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("cut", CUTS)
def test_demo_model_with_long_prompts(cut: str) -> None:
    check_alone_and_together(demo_model(), cut, prompts(20, 700, 40000))


def test_demo_model_in_bfloat16_up_to_ties() -> None:
    model = demo_model()
    cases = prompts(6, 120, 40000)
    with served(model, "bfloat16") as client:
        answers = [ask(client, prompt) for prompt in cases]
    for prompt, answer in zip(cases, answers, strict=True):
        logits = all_logits(model, prompt + answer, dtype="bfloat16")[len(prompt) - 1 : -1]
        chosen = logits.gather(1, torch.tensor(answer).unsqueeze(1)).squeeze(1)
        gaps = logits.max(dim=1).values - chosen
        assert float(gaps.max()) <= BF16_TIE, (
            f"after a prompt of {len(prompt)}: {gaps.tolist()} below the best"
        )
