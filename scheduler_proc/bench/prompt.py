"""Steps around one very long prompt: its arrival, its reading, its end, and once more when it is cached."""

import time
from collections.abc import Iterator

import numpy as np

from ...protocol.codec import encode
from ...protocol.requests import Submit
from ...protocol.sampling import SamplingParams
from .decode import DecodeBench

_ALONE_STEPS = 300
_OUTPUT = 5  # tokens of the answer

Seconds = np.ndarray[tuple[int], np.dtype[np.float64]]


class PromptBench:
    """`ROWS` choices that decode, and a prompt of so many tokens that comes, ends, and comes again."""

    ROWS = 64

    def __init__(self, num_tokens: int) -> None:
        # The maximum counts, and a slice of time that the machine gives to somebody else is none of ours.
        longest = num_tokens + 5000
        self._bench = DecodeBench(self.ROWS, longest=longest, spare_rows=1, clock=time.thread_time)
        self._prompt = (np.arange(num_tokens, dtype=np.int64) * 7919 % 900 + 3).astype(np.int32).tobytes()

    def run(self) -> Iterator[tuple[str, Seconds]]:
        """What went on, and the seconds of each step meanwhile."""
        self._bench.warm()
        yield "without it", np.array([self._bench.step() for _ in range(_ALONE_STEPS)])
        yield from self._come("read")
        yield from self._come("found in the cache")

    def _come(self, how: str) -> Iterator[tuple[str, Seconds]]:
        """The prompt comes, is read, answered and released."""
        params = SamplingParams(max_tokens=_OUTPUT, ignore_eos=True)
        frame = encode(Submit(10_000, 0, f"long, {how}", self._prompt, params, 1))
        yield f"it arrives, to be {how}", np.array([self._bench.step(frame)])
        times: list[float] = []
        while self._bench.core.next_turn() == 0.0 or self._open() or not times:
            times.append(self._bench.step())
        yield f"it is {how}, and ends", np.array(times)

    def _open(self) -> bool:
        stats = self._bench.core.engine_stats()
        return stats.running + stats.waiting > self.ROWS
