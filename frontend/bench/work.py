"""Offline work by name: how many requests, how long their prompts and outputs."""

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """Requests that are all there from the start; each generates all its tokens."""

    name: str
    what: str  # for people
    lengths: tuple[tuple[int, int], ...]  # (prompt, output) of each request

    @property
    def num_prompt_tokens(self) -> int:
        return sum(prompt for prompt, _ in self.lengths)

    @property
    def num_output_tokens(self) -> int:
        return sum(output for _, output in self.lengths)


def _mix() -> tuple[tuple[int, int], ...]:
    rng = random.Random(1)
    return tuple((rng.randint(100, 1024), rng.randint(100, 1024)) for _ in range(256))


def _equal(count: int, prompt: int, output: int) -> Callable[[], tuple[tuple[int, int], ...]]:
    return lambda: ((prompt, output),) * count


_WORK: dict[str, tuple[str, Callable[[], tuple[tuple[int, int], ...]]]] = {
    "single": ("1 x (128 in, 256 out)", _equal(1, 128, 256)),
    "batch64": ("64 x (128 in, 256 out)", _equal(64, 128, 256)),
    "batch256": ("256 x (128 in, 256 out)", _equal(256, 128, 256)),
    "mix": ("256 x (100-1024 in, 100-1024 out)", _mix),
    "prompts": ("32 x (4096 in, 1 out)", _equal(32, 4096, 1)),
    "long": ("16 x (7000 in, 256 out)", _equal(16, 7000, 256)),
}
NAMES = tuple(_WORK)


def make_work(name: str) -> Work:
    """The work of that name. Raises KeyError."""
    what, lengths = _WORK[name]
    return Work(name, what, lengths())


def make_prompts(work: Work, vocab_size: int) -> list[list[int]]:
    """Random token ids, the same in every run, of which no two prompts share a beginning."""
    rng = random.Random(2)
    return [[rng.randrange(3, vocab_size) for _ in range(prompt)] for prompt, _ in work.lengths]
