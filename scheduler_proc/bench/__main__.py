"""`python -m octavo.scheduler_proc.bench`: the scheduler's own time for a step.

The yardstick beside it is a fixed loop of Python arithmetic, so that figures of different machines can be
compared.
"""

import argparse
import gc
import sys
import time

import numpy as np

from ..allocator import keep_memory
from .decode import DecodeBench
from .prompt import PromptBench

_ROWS = [1, 64, 256, 1024, 4096]
_QUEUED_ROWS = 256


def yardstick() -> float:
    """Seconds for a fixed loop of Python arithmetic; the best of five."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        total = 0
        for number in range(100_000):
            total += number * number % 7
        best = min(best, time.perf_counter() - began)
    return best


def main(argv: list[str]) -> int:
    """Print a line for each number of rows, for each length of the queue, and for the long prompt."""
    parser = argparse.ArgumentParser(prog="octavo bench scheduler", description=__doc__, allow_abbrev=False)
    parser.add_argument("rows", nargs="*", type=int, default=_ROWS, metavar="ROWS", help="that decode")
    parser.add_argument("--queue", nargs="*", type=int, default=[1000, 100_000], help="requests that wait")
    parser.add_argument("--prompt", type=int, default=1_000_000, help="tokens, 0: none")
    arguments = parser.parse_args(argv[1:])
    keep_memory()
    unit = yardstick()
    sys.stdout.write(f"yardstick (100k additions in Python): {unit * 1e3:.2f} ms\n")
    for rows in arguments.rows:
        _tell(f"{rows:5d} rows", DecodeBench(rows).run(), unit)
    for waiting in arguments.queue:
        bench = DecodeBench(_QUEUED_ROWS, waiting)
        _tell(f"{_QUEUED_ROWS:5d} rows, {waiting} wait", bench.run(), unit)
        gc.unfreeze()
        del bench
        gc.collect()
    if arguments.prompt:
        _tell_prompt(arguments.prompt)
    return 0


def _tell_prompt(num_tokens: int) -> None:
    sys.stdout.write(f"a prompt of {num_tokens} tokens beside {PromptBench.ROWS} rows that decode, in ms:\n")
    for phase, times in PromptBench(num_tokens).run():
        median, most = np.median(times) * 1e3, times.max() * 1e3
        sys.stdout.write(f"  {phase:40s} {len(times):4d} steps: median {median:6.2f}, most {most:6.2f}\n")


def _tell(title: str, times: np.ndarray[tuple[int], np.dtype[np.float64]], unit: float) -> None:
    median, tail = np.percentile(times * 1e6, [50, 99])
    sys.stdout.write(
        f"{title}: median {median:6.0f} us, p99 {tail:6.0f} us, {median / 1e6 / unit:.4f} yardsticks\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
