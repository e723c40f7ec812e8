"""Scheduling and caching are not visible in the answers: a context-sensitive model beside transformers."""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.tests.support.client import Client
from octavo.tests.support.models import make_ctx_model
from octavo.tests.support.reference import all_logits, greedy_ids
from octavo.tests.support.server import start_server

pytestmark = pytest.mark.e2e

B = 16  # block size
Serve = Callable[..., Client]


@pytest.fixture(scope="module")
def ctx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ctx_model(tmp_path_factory.mktemp("ctx"))


@pytest.fixture(scope="module")
def serve(ctx: Path) -> Iterator[Serve]:
    """Serve the CTX model with these flags; the same flags are served once."""
    clients: dict[tuple[str, ...], Client] = {}
    with ExitStack() as stack:

        def get(*flags: str) -> Client:
            if flags not in clients:
                common = (
                    "--device",
                    "cpu",
                    "--block-size",
                    str(B),
                    "--max-model-len",
                    "512",
                    "--cpu-threads",
                    "1",
                )
                server = start_server(ctx, *common, *flags)
                stack.callback(server.stop)
                clients[flags] = Client(server.url)
                stack.callback(clients[flags].close)
            return clients[flags]

        yield get


def ids(length: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(5, 250) for _ in range(length)]


def answer(client: Client, prompt: list[int], max_tokens: int, **fields: Any) -> dict[str, Any]:
    return client.complete(prompt, max_tokens=max_tokens, ignore_eos=True, return_token_ids=True, **fields)


def tokens(client: Client, prompt: list[int], max_tokens: int, **fields: Any) -> list[int]:
    result: list[int] = answer(client, prompt, max_tokens, **fields)["choices"][0]["token_ids"]
    return result


@pytest.mark.parametrize(
    "fields",
    [{}, {"frequency_penalty": 0.5}, {"temperature": 1.0, "seed": 5}],
    ids=["greedy", "penalty", "seeded"],
)
def test_o40_preemption_changes_no_token(serve: Serve, ctx: Path, fields: dict[str, Any]) -> None:
    prompts = [ids(3 * B, 1), ids(3 * B, 2)]
    roomy = serve()
    alone = [tokens(roomy, prompt, 3 * B, **fields) for prompt in prompts]
    # 6 blocks a request, 9 in the pool: one and a half requests.
    tight = serve("--num-gpu-blocks-override", "9", "--no-enable-prefix-caching")
    tight.teach_short_answers(30)
    preempted = tight.metric("octavo_num_preemptions_total")
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda prompt: answer(tight, prompt, 3 * B, **fields), prompts))
    assert [one["choices"][0]["token_ids"] for one in together] == alone
    assert [one["usage"]["completion_tokens"] for one in together] == [3 * B, 3 * B]
    assert tight.metric("octavo_num_preemptions_total") > preempted
    if not fields:
        assert alone == [greedy_ids(ctx, prompt, 3 * B) for prompt in prompts]


@pytest.mark.parametrize("length", [B - 1, B, B + 1, 2 * B])
def test_o41_a_prompt_that_is_cached_whole_is_answered_the_same(serve: Serve, ctx: Path, length: int) -> None:
    client = serve()
    prompt = ids(length, 100 + length)
    first = tokens(client, prompt, 8)
    again = answer(client, prompt, 8)
    assert first == again["choices"][0]["token_ids"] == greedy_ids(ctx, prompt, 8)
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached < length
    assert cached % B == 0


def test_o42_a_cache_hit_gives_the_text_of_a_miss(serve: Serve) -> None:
    cached, plain = serve(), serve("--no-enable-prefix-caching")
    prefix = ids(3 * B + 5, 7)
    prompts = [[*prefix, 50], [*prefix, 60], [*prefix, 50]]
    hits = cached.metric("octavo_prefix_cache_hits_total")
    assert [tokens(cached, prompt, 20) for prompt in prompts] == [
        tokens(plain, prompt, 20) for prompt in prompts
    ]
    assert cached.metric("octavo_prefix_cache_hits_total") > hits
    assert plain.metric("octavo_prefix_cache_hits_total") == 0


@pytest.mark.parametrize("length", [15, 16, 17, 32, 33])
def test_o43_a_chunk_of_a_prompt_produces_no_token(serve: Serve, ctx: Path, length: int) -> None:
    client = serve("--max-num-batched-tokens", "16", "--no-enable-prefix-caching")
    prompt = ids(length, 200 + length)
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(tokens, client, ids(9, 3), 60)
        result = answer(client, prompt, 8)
        assert beside.result() == greedy_ids(ctx, ids(9, 3), 60)
    assert result["choices"][0]["token_ids"] == greedy_ids(ctx, prompt, 8)
    assert result["usage"]["completion_tokens"] == 8


@pytest.mark.parametrize(
    "fields", [{"prompt_logprobs": 1}, {"echo": True, "logprobs": 1}], ids=["own", "echo"]
)
def test_o30_prompt_logprobs_on_a_prefix_cache_hit(serve: Serve, ctx: Path, fields: dict[str, Any]) -> None:
    client = serve()
    prompt = ids(2 * B + 1, seed=30)
    expected = all_logits(ctx, prompt).log_softmax(-1)[:-1].gather(1, torch.tensor(prompt[1:]).unsqueeze(1))
    for _ in range(2):
        choice = answer(client, prompt, 1, **fields)["choices"][0]
        if "echo" in fields:
            first, *told = choice["logprobs"]["token_logprobs"]
            told = told[: len(prompt) - 1]
        else:
            first, *entries = choice["prompt_logprobs"]
            told = [entry[str(token)]["logprob"] for entry, token in zip(entries, prompt[1:], strict=True)]
        assert first is None
        assert told == pytest.approx(expected.squeeze(1).tolist(), abs=1e-3)
