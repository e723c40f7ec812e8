"""Models whose layers see a window only, through every process: memory for a window, not for a context."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from octavo.tests.support.client import Client
from octavo.tests.support.models import make_tok_b
from octavo.tests.support.random_models import make_random_model
from octavo.tests.support.reference import greedy_ids
from octavo.tests.support.server import start_server

pytestmark = pytest.mark.e2e

MAX_TOKENS = 40
LENGTHS = [1, 31, 32, 33, 150, 300]
SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
WINDOW = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 32}
HYBRID = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "use_sliding_window": True,
    "sliding_window": 32,
    "layer_types": ["sliding_attention", "full_attention"],
}
TINY_POOL = ("--num-gpu-blocks-override", "14", "--max-num-batched-tokens", "64")


@pytest.mark.parametrize(
    ("config", "flags"),
    [
        pytest.param(WINDOW, TINY_POOL, id="tiny pool"),
        pytest.param(HYBRID, (), id="two groups", marks=pytest.mark.full),
    ],
)
def test_tokens_equal_transformers_alone_and_together(
    tmp_path: Path, config: dict[str, Any], flags: tuple[str, ...]
) -> None:
    """A pool of 14 blocks holds 224 tokens: rows of 340 fit only because blocks leave the window."""
    vocab_size = make_tok_b(tmp_path, names_eos=False).get_vocab_size()
    make_random_model(tmp_path, {"vocab_size": vocab_size, **SIZES, **config})
    rng = random.Random(0)
    prompts = [[rng.randrange(5, 250) for _ in range(length)] for length in LENGTHS]
    expected = [greedy_ids(tmp_path, prompt, MAX_TOKENS) for prompt in prompts]

    def ask(prompt: list[int]) -> list[int]:
        body = client.complete(prompt, max_tokens=MAX_TOKENS, ignore_eos=True, return_token_ids=True)
        tokens: list[int] = body["choices"][0]["token_ids"]
        return tokens

    device = ("--device", "cpu", "--dtype", "float32", "--block-size", "16")
    with start_server(tmp_path, *device, *flags) as server, Client(server.url, timeout=100) as client:
        assert [ask(prompt) for prompt in prompts] == expected
        with ThreadPoolExecutor(12) as pool:
            assert list(pool.map(ask, [*prompts, *prompts])) == [*expected, *expected]
        if not flags:
            assert client.metric("octavo_prefix_cache_hits_total") > 0
