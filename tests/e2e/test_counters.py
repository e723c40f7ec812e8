"""After many requests of all kinds the server's counters say what the client counted itself."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from octavo.tests.support.models import make_ctx_model
from octavo.tests.support.server import Server, start_server
from octavo.tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

ROUTE = "/v1/completions"
KINDS = ("whole", "whole", "stream", "several", "abort", "timeout", "refused", "unknown model")
AT_ONCE = 24
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    model = make_ctx_model(tmp_path_factory.mktemp("ctx"))
    flags = ("--device", "sim", "--sim", "step_ms=2", "--api-server-count", "2")
    with start_server(model, *flags) as server:
        yield server


def scrape(url: str) -> Samples:
    """Every sample of the page, read by another's parser."""
    page = httpx.get(f"{url}/metrics", timeout=30).text
    samples = {}
    for family in text_string_to_metric_families(page):
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples, f"{key} is there twice"
            samples[key] = sample.value
    return samples


def total(samples: Samples, name: str, **labels: str) -> float:
    """The sum over all samples of a name with these labels."""
    wanted, shown = set(labels.items()), f"octavo_{name}"
    return sum(value for (other, has), value in samples.items() if other == shown and wanted <= has)


async def ask(client: httpx.AsyncClient, kind: str, seed: int) -> tuple[str, int]:
    """One request: how it ended, and the output tokens that the answer reports."""
    body: dict[str, Any] = {"prompt": [5, 6, 7 + seed % 9], "max_tokens": 4 + seed % 7, "ignore_eos": True}
    if kind == "several":
        body |= {"n": 2, "seed": seed}
    elif kind == "timeout":
        body |= {"max_tokens": 1500, "timeout": 0.05}
    elif kind == "refused":
        body |= {"temperature": -1}
    elif kind == "unknown model":
        body |= {"model": "nobody"}
    elif kind in ("stream", "abort"):
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        if kind == "abort":
            body |= {"max_tokens": 1500}
        return await _stream(client, body, leaves=kind == "abort")
    answer = await client.post(ROUTE, json=body)
    used = answer.json().get("usage", {}).get("completion_tokens", 0)
    return str(answer.status_code), used


async def _stream(client: httpx.AsyncClient, body: dict[str, Any], *, leaves: bool) -> tuple[str, int]:
    used = 0
    async with client.stream("POST", ROUTE, json=body) as response:
        async for line in response.aiter_lines():
            if leaves and '"text"' in line:
                return "left", 0
            if '"completion_tokens":' in line:
                used = int(line.partition('"completion_tokens":')[2].partition(",")[0])
    return str(response.status_code), used


async def run(url: str, count: int) -> tuple[Counter[tuple[str, str]], int]:
    """So many requests, some at a time: endings by kind, and tokens of the answers that report them."""
    chance = random.Random(1)
    endings: Counter[tuple[str, str]] = Counter()
    tokens, gate = 0, asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:

        async def one(seed: int) -> None:
            nonlocal tokens
            kind = chance.choice(KINDS)
            async with gate:
                ended, used = await ask(client, kind, seed)
            endings[kind, ended] += 1
            tokens += used

        await asyncio.gather(*(one(seed) for seed in range(count)))
    return endings, tokens


def check(server: Server, count: int) -> None:
    before = scrape(server.url)
    endings, tokens = asyncio.run(run(server.url, count))
    by_kind: Counter[str] = Counter()
    for (kind, _), number in endings.items():
        by_kind[kind] += number
    wait_until(lambda: is_done(server.url, before, count), within=30, what="every request is counted")
    after = scrape(server.url)
    fell = [key for key, value in before.items() if after.get(key, 0.0) < value and not is_gauge(key[0])]
    assert fell == []

    def gained(name: str, **labels: str) -> float:
        return total(after, name, **labels) - total(before, name, **labels)

    good = by_kind["whole"] + by_kind["stream"] + by_kind["several"]
    assert endings["whole", "200"] + endings["stream", "200"] + endings["several", "200"] == good
    assert gained("request_success_total", finished_reason="length") == good
    assert gained("request_success_total", finished_reason="timeout") == by_kind["timeout"]
    assert gained("request_success_total", finished_reason="abort") == by_kind["abort"]
    assert gained("request_success_total", finished_reason="error") == 0
    statuses = {"400": by_kind["refused"], "404": by_kind["unknown model"], "504": by_kind["timeout"]}
    for status, number in statuses.items():
        assert gained("http_requests_total", route=ROUTE, status=status) == number
    assert gained("http_requests_total", route=ROUTE) == count
    accepted = good + by_kind["timeout"] + by_kind["abort"]
    assert gained("e2e_request_latency_seconds_count") == accepted
    assert gained("e2e_request_latency_seconds_bucket", le="+Inf") == accepted
    assert gained("generation_tokens_total") == gained("request_generation_tokens_sum") >= tokens
    assert gained("time_to_first_token_seconds_count") <= accepted


def is_gauge(name: str) -> bool:
    return name.startswith(("octavo_num_requests", "octavo_kv_", "octavo_journal", "octavo_process_up"))


def is_done(url: str, before: Samples, count: int) -> bool:
    """Nothing runs, and all were counted: aborts are noticed a moment behind the client's leaving."""
    now = scrape(url)
    running = total(now, "num_requests_running") + total(now, "num_requests_waiting")
    then, answered = (total(samples, "http_requests_total", route=ROUTE) for samples in (before, now))
    return not running and not total(now, "kv_blocks", state="live") and answered - then == count


def test_o58_counters_add_up(server: Server) -> None:
    check(server, 240)


@pytest.mark.full
def test_o58_counters_add_up_after_five_thousand_requests(server: Server) -> None:
    check(server, 5000)


def test_o58_tokens_of_answers_are_those_counted(server: Server) -> None:
    before = total(scrape(server.url), "generation_tokens_total")
    body = {"prompt": [5, 6], "n": 2, "max_tokens": 9, "ignore_eos": True}
    used = [
        httpx.post(f"{server.url}{ROUTE}", json=body, timeout=30).json()["usage"]["completion_tokens"]
        for _ in range(20)
    ]
    assert total(scrape(server.url), "generation_tokens_total") - before == sum(used) == 360


def test_processes_are_up(server: Server) -> None:
    samples = scrape(server.url)
    for role in ("worker-0-0", "scheduler", "frontend-0", "frontend-1"):
        assert total(samples, "process_up", process=role) == 1


@pytest.mark.parametrize(
    "name",
    ["time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds"],
)
def test_buckets_of_latencies_resolve_a_millisecond(server: Server, name: str) -> None:
    bounds = {dict(has)["le"] for other, has in scrape(server.url) if other == f"octavo_{name}_bucket"}
    assert {"0.001", "0.002", "0.003", "0.004", "0.005"} <= bounds
