"""A request's tokens are its own: alone, beside others, after a preemption, a cache hit or a worker's end."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from octavo.tests.support.client import Client
from octavo.tests.support.demo import demo_model
from octavo.tests.support.models import make_ctx_model
from octavo.tests.support.server import Server, start_server
from octavo.tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NUM_TOGETHER = 32
MAX_TOKENS = 96  # enough for requests to outgrow the tiny pool together
FLAGS = ("--device", "cpu", "--dtype", "float32", "--max-model-len", "1024", "--block-size", "16")
TINY_POOL = ("--num-gpu-blocks-override", "60", "--no-enable-prefix-caching")

Body = dict[str, Any]
Tokens = list[list[int]]


def bodies() -> list[Body]:
    """Prompts of 1 to 94 tokens; greedy, seeded and seeded with every narrowing in turn."""
    kinds: tuple[Body, ...] = (
        {"temperature": 0},
        {"temperature": 1.0, "seed": 11},
        {"temperature": 0.7, "seed": 12, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2},
        {"temperature": 0, "presence_penalty": 0.5, "frequency_penalty": 0.5},
    )
    return [
        {"prompt": [5 + (7 * number + place) % 200 for place in range(1 + 3 * number)], **kinds[number % 4]}
        for number in range(NUM_TOGETHER)
    ]


def ask(client: Client, body: Body) -> list[int]:
    answer = client.complete(
        **{"max_tokens": MAX_TOKENS, "ignore_eos": True, "return_token_ids": True, **body}
    )
    tokens: list[int] = answer["choices"][0]["token_ids"]
    return tokens


def ask_together(client: Client) -> Tokens:
    with ThreadPoolExecutor(NUM_TOGETHER) as pool:
        return list(pool.map(lambda body: ask(client, body), bodies()))


def served(model: Path, *flags: str) -> Server:
    return start_server(model, *FLAGS, *flags)


def check_cached_and_restarted(model: Path) -> Tokens:
    """Alone, a second time, together, and while the worker is killed; returns the tokens."""
    with served(model) as server, Client(server.url, timeout=300) as client:
        alone = [ask(client, body) for body in bodies()]
        assert len({tuple(tokens) for tokens in alone}) > NUM_TOGETHER // 2
        hits = client.metric("octavo_prefix_cache_hits_total")
        assert [ask(client, body) for body in bodies()] == alone
        assert client.metric("octavo_prefix_cache_hits_total") > hits
        assert ask_together(client) == alone
        assert during(server, client, lambda: server.kill("worker-0-0")) == alone
    return alone


def during(server: Server, client: Client, happen: Callable[[], None]) -> Tokens:
    """All together, and `happen` when they have begun; a worker's end must have been noticed."""
    worker = server.pids()["worker-0-0"]
    begun = client.metric("octavo_generation_tokens_total")
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(ask_together, client)
        wait_until(
            lambda: client.metric("octavo_generation_tokens_total") > begun + NUM_TOGETHER,
            within=60,
            what="the requests run",
        )
        happen()
        assert not answers.done()
        tokens = answers.result()
    assert server.pids()["worker-0-0"] != worker
    return tokens


def check_preempted(model: Path, expected: Tokens) -> None:
    with served(model, *TINY_POOL) as server, Client(server.url, timeout=300) as client:
        client.teach_short_answers(300)
        assert ask_together(client) == expected
        assert client.metric("octavo_num_preemptions_total") > 0


@pytest.fixture(scope="module")
def ctx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield make_ctx_model(tmp_path_factory.mktemp("ctx"))


@pytest.mark.full
def test_tokens_are_the_same_whatever_happens(ctx: Path) -> None:
    check_preempted(ctx, check_cached_and_restarted(ctx))


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_tokens_of_the_demo_model_are_the_same_whatever_happens() -> None:
    check_preempted(demo_model(), check_cached_and_restarted(demo_model()))
