"""Seeds for requests that have none of their own."""

import random
from collections.abc import Callable


def seeds_from(seed: int) -> Callable[[], int]:
    """A source of 64-bit seeds: the same `seed` gives the same ones, so that a program can be repeated."""
    source = random.Random(seed)
    return lambda: source.getrandbits(64)
