"""The load client: it sends what a shape says, counts what came, and hides no failure."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.frontend.bench.load import Shape, make_bodies, percentile, run_load
from octavo.frontend.bench.processes import run_processes
from octavo.frontend.bench.stream import Answer, _events, _take, complete
from octavo.tests.support.models import make_ctx_model
from octavo.tests.support.server import Server, start_server

SHAPE = Shape(
    name="s", num_requests=12, concurrency=4, prompt_len=(3, 9), output_len=(5, 20), shared_prefix=7
)
VOCAB = (5, 250)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = make_ctx_model(tmp_path_factory.mktemp("ctx"))
    with start_server(folder, "--device", "sim", "--sim", "step_ms=1") as server:
        yield server


def test_bodies_are_what_the_shape_says() -> None:
    bodies = make_bodies(SHAPE, vocab=VOCAB, seed=3)
    assert bodies == make_bodies(SHAPE, vocab=VOCAB, seed=3)
    assert bodies != make_bodies(SHAPE, vocab=VOCAB, seed=4)
    prompts = [body["prompt"] for body in bodies]
    assert len(prompts) == SHAPE.num_requests
    for body, prompt in zip(bodies, prompts, strict=True):
        assert isinstance(prompt, list)
        assert prompt[:7] == prompts[0][:7]  # type: ignore[index]
        assert 10 <= len(prompt) <= 16
        assert all(5 <= token < 250 for token in prompt)
        assert 5 <= int(str(body["max_tokens"])) <= 20


@pytest.mark.e2e
def test_a_load_counts_every_token(server: Server) -> None:
    report = asyncio.run(run_load(server.url, SHAPE, vocab=VOCAB, seed=3))
    assert report.errors == ()
    asked = sum(int(str(body["max_tokens"])) for body in make_bodies(SHAPE, vocab=VOCAB, seed=3))
    assert report.num_tokens == asked
    assert len(report.first) == SHAPE.num_requests
    assert len(report.gaps) == report.num_frames - SHAPE.num_requests
    assert 0 < report.num_frames <= asked
    assert list(report.gaps) == sorted(report.gaps)
    assert len(report.per_token) == SHAPE.num_requests
    assert 0 < report.first[0] <= report.first[-1] <= report.seconds


@pytest.mark.e2e
def test_processes_send_every_request_once(server: Server) -> None:
    shape = replace(SHAPE, rate=100.0)
    report = run_processes(server.url, shape, processes=3, vocab=VOCAB, seed=3)
    alone = asyncio.run(run_load(server.url, SHAPE, vocab=VOCAB, seed=3))
    assert report.errors == ()
    assert report.num_tokens == alone.num_tokens
    assert len(report.first) == len(alone.first)


@pytest.mark.e2e
def test_a_refused_request_is_an_error_with_its_status(server: Server) -> None:
    answer = asyncio.run(complete(server.url, {"prompt": [5], "max_tokens": 0.5}))
    assert answer.error.startswith("status 400")
    report = asyncio.run(run_load(server.url, SHAPE, vocab=(10_000, 10_001)))
    assert len(report.errors) == SHAPE.num_requests
    assert math.isnan(percentile(report.first, 50))


def test_no_server_is_an_error() -> None:
    answer = asyncio.run(complete("http://127.0.0.1:9", {"prompt": [5]}))
    assert "Refused" in answer.error


@given(st.lists(st.binary(max_size=8).filter(lambda data: b"\n" not in data), max_size=5), st.data())
def test_events_are_found_wherever_the_pieces_are_cut(events: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(b"data: " + event + b"\n\n" for event in events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))

    async def pieces() -> AsyncIterator[bytes]:
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            yield stream[start:end]

    async def collect() -> list[bytes]:
        return [event async for event in _events(pieces())]

    assert asyncio.run(collect()) == events


def test_a_failure_in_the_middle_is_not_an_answer() -> None:
    answer = Answer(0.0)
    _take(b'{"choices":[{"text":"a"}]}', answer)
    _take(b'{"error":{"message":"cut"}}', answer)
    assert len(answer.frames) == 1
    assert "cut" in answer.error


@pytest.mark.parametrize(("percent", "value"), [(0, 1.0), (50, 6.0), (90, 10.0), (99, 10.0), (100, 10.0)])
def test_percentiles(percent: float, value: float) -> None:
    assert percentile(tuple(map(float, range(1, 11))), percent) == value
