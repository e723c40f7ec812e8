"""Many requests of one shape, so many at a time, and the figures of all together."""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from .stream import Answer, complete


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Requests of a kind. Lengths are uniform between their bounds; prompts are random token ids.

    Never more than `concurrency` requests are open at once. With a rate they begin at random moments.
    """

    name: str
    num_requests: int
    concurrency: int
    prompt_len: tuple[int, int]
    output_len: tuple[int, int]
    shared_prefix: int = 0  # tokens in front of every prompt, the same for all
    temperature: float = 1.0
    rate: float = 0.0  # requests a second on average; 0: as soon as another has ended


@dataclass(frozen=True)
class Report:
    """What a load came to. Times are in seconds."""

    shape: Shape
    seconds: float
    num_tokens: int
    num_frames: int  # that hold a token
    first: tuple[float, ...]  # to the first frame, one a request, sorted
    gaps: tuple[float, ...]  # between frames of a stream, sorted
    per_token: tuple[float, ...]  # of a request behind its first token, sorted
    errors: tuple[str, ...]

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds


def percentile(values: tuple[float, ...], percent: float) -> float:
    """The value of sorted `values` below which `percent` of them lie; not a number when there are none."""
    if not values:
        return float("nan")
    return values[min(len(values) - 1, int(len(values) * percent / 100))]


def make_bodies(shape: Shape, *, vocab: tuple[int, int], seed: int) -> list[dict[str, object]]:
    """The bodies of a shape's requests, token ids from `vocab`; the same for the same seed."""
    rng = random.Random(seed)

    def tokens(count: int) -> list[int]:
        return [rng.randrange(*vocab) for _ in range(count)]

    prefix = tokens(shape.shared_prefix)
    return [
        {
            "prompt": prefix + tokens(rng.randint(*shape.prompt_len)),
            "max_tokens": rng.randint(*shape.output_len),
            "temperature": shape.temperature,
            "ignore_eos": True,
        }
        for _ in range(shape.num_requests)
    ]


async def run_load(
    url: str, shape: Shape, *, vocab: tuple[int, int] = (100, 40_000), seed: int = 0
) -> Report:
    """Send a shape's requests to the server at `url`."""
    bodies = make_bodies(shape, vocab=vocab, seed=seed)
    began = time.perf_counter()
    answers = await send_all(url, bodies, concurrency=shape.concurrency, rate=shape.rate, seed=seed)
    return make_report(shape, answers, seconds=time.perf_counter() - began)


async def send_all(
    url: str, bodies: Sequence[dict[str, object]], *, concurrency: int, rate: float, seed: int
) -> list[Answer]:
    """The answers to all bodies, never more than `concurrency` at once, begun at `rate` a second if not 0."""
    waiting, rng = iter(bodies), random.Random(seed)
    answers: list[Answer] = []
    free = asyncio.Semaphore(concurrency)

    async def client(body: dict[str, object]) -> None:
        async with free:
            answer = await complete(url, body)
        if not answer.error and answer.num_tokens != body["max_tokens"]:
            answer.error = f"{answer.num_tokens} tokens instead of {body['max_tokens']}"
        answers.append(answer)

    async with asyncio.TaskGroup() as clients:
        for body in waiting:
            clients.create_task(client(body))
            if rate:
                await asyncio.sleep(rng.expovariate(rate))
    return answers


def make_report(shape: Shape, answers: Sequence[Answer], *, seconds: float) -> Report:
    """The figures of a shape's answers, which came within so many seconds."""
    good = [answer for answer in answers if not answer.error]
    spans = [(answer.frames[-1] - answer.frames[0], answer.num_tokens - 1) for answer in good]
    return Report(
        shape=shape,
        seconds=seconds,
        num_tokens=sum(answer.num_tokens for answer in good),
        num_frames=sum(len(answer.frames) for answer in good),
        first=tuple(sorted(answer.first for answer in good)),
        gaps=tuple(sorted(gap for answer in good for gap in answer.gaps)),
        per_token=tuple(sorted(span / count for span, count in spans if count > 0)),
        errors=tuple(answer.error for answer in answers if answer.error),
    )
