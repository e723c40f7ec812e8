"""Many requests of one shape, so many at a time, and the figures of all together."""

import asyncio
import random
import time
from dataclasses import dataclass

from .stream import Answer, complete


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Requests of a kind. Lengths are uniform between their bounds; prompts are random token ids."""

    name: str
    num_requests: int
    concurrency: int
    prompt_len: tuple[int, int]
    output_len: tuple[int, int]
    shared_prefix: int = 0  # tokens in front of every prompt, the same for all
    temperature: float = 1.0


@dataclass(frozen=True)
class Report:
    """What a load came to. Times are in seconds."""

    shape: Shape
    seconds: float
    num_tokens: int
    first: tuple[float, ...]  # to the first frame, one a request, sorted
    gaps: tuple[float, ...]  # between frames of a stream, sorted
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
    """Send a shape's requests to the server at `url`, never more than its concurrency at once."""
    waiting = iter(make_bodies(shape, vocab=vocab, seed=seed))
    answers: list[Answer] = []

    async def client() -> None:
        for body in waiting:
            answer = await complete(url, body)
            if not answer.error and answer.num_tokens != body["max_tokens"]:
                answer.error = f"{answer.num_tokens} tokens instead of {body['max_tokens']}"
            answers.append(answer)

    began = time.perf_counter()
    await asyncio.gather(*[client() for _ in range(shape.concurrency)])
    seconds = time.perf_counter() - began
    good = [answer for answer in answers if not answer.error]
    return Report(
        shape=shape,
        seconds=seconds,
        num_tokens=sum(answer.num_tokens for answer in good),
        first=tuple(sorted(answer.first for answer in good)),
        gaps=tuple(sorted(gap for answer in good for gap in answer.gaps)),
        errors=tuple(answer.error for answer in answers if answer.error),
    )
