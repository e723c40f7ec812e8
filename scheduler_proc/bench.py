"""`python -m octavo.scheduler_proc.bench [ROWS ...]`: the scheduler's own time for a step that only decodes.

Measured from the bytes of a result to the bytes of the next plan and of the deltas: codec, stop checks,
block hashing and planning are in; sockets and metrics are not. The yardstick beside it is a fixed loop of
Python arithmetic, so that figures of different machines can be compared.
"""

import gc
import sys
import time
from collections import deque

import numpy as np

from ..protocol.codec import FINGERPRINT, encode, to_worker_decoder, worker_decoder
from ..protocol.columns import pack_i32
from ..protocol.config import SchedulerConfig
from ..protocol.lifecycle import KVGroup, WorkerHello, WorkerReady
from ..protocol.requests import Submit
from ..protocol.sampling import SamplingParams
from ..protocol.steps import StepPlan, StepResult
from .core.commands import Command, SendWorker
from .core.events import FromClient, FromWorker, Turn
from .core.scheduler import Scheduler
from .core.state import Identity

_STEPS = 2000
_WARM_STEPS = 200
_PROMPT = 100
_BLOCK = 64
_CLIENTS = 2


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


class DecodeBench:
    """A core with `rows` choices that decode, and a stand-in for their worker."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._now = 0.0
        self._frames: deque[bytes] = deque()
        self._plans = to_worker_decoder()
        self._results = worker_decoder()
        length = _PROMPT + _WARM_STEPS + _STEPS + 100
        config = SchedulerConfig(
            run_dir="",
            client_endpoint="",
            worker_endpoint="",
            lifeline_fd=-1,
            parent_pid=0,
            model="bench",
            vocab_size=1000,
            max_model_len=length,
            eos_token_ids=(2,),
            max_num_seqs=rows,
            max_num_batched_tokens=max(2048, 2 * rows),
        )
        self._core = Scheduler(config, Identity(1, b"k" * 32))
        blocks = KVGroup(rows * (length // _BLOCK + 2), _BLOCK)
        budget = config.max_num_batched_tokens
        self._core.handle(FromWorker(0.0, 0, 0, WorkerHello(FINGERPRINT, 1, 0, 0, 1)))
        self._core.handle(FromWorker(0.0, 0, 0, WorkerReady(1, (blocks,), rows, budget, 1000, ())))
        params = SamplingParams(max_tokens=length - _PROMPT)
        for number in range(rows):
            prompt = pack_i32(3 + (number * 31 + at) % 900 for at in range(_PROMPT))
            submit = Submit(number, 0, f"r{number}", prompt, params, number)
            self._core.handle(FromClient(0.0, b"c%d" % (number % _CLIENTS), submit))
        self._keep(self._core.handle(Turn(0.0)))

    def _keep(self, commands: list[Command]) -> None:
        """Encode what would be sent; the plans' results are what the worker would send."""
        for command in commands:
            if isinstance(command, SendWorker):
                self._frames.append(encode(command.message))
            elif not hasattr(command, "text"):
                encode(command.message)

    def _result(self) -> bytes:
        plan = self._plans.decode(self._frames.popleft())
        assert isinstance(plan, StepPlan)
        samples = np.frombuffer(plan.samples, np.int32).astype(bool)
        rows = np.frombuffer(plan.row, np.int32)[samples]
        tokens = (rows * 7 + plan.step * 13) % 900 + 3
        return encode(StepResult(1, plan.step, rows.tobytes(), tokens.astype(np.int32).tobytes(), 1.0, 1.0))

    def step(self) -> float:
        """Seconds of one step."""
        frame = self._result()
        self._now += 0.01
        began = time.perf_counter()
        self._keep(self._core.handle(FromWorker(self._now, 0, 0, self._results.decode(frame))))
        self._keep(self._core.handle(Turn(self._now)))
        return time.perf_counter() - began

    def run(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Seconds of each of many steps, once all rows decode."""
        while self._core.stats.generated_tokens < self.rows * 10:
            self.step()
        for _ in range(_WARM_STEPS):
            self.step()
        self._core.stats.take_step_times()
        gc.collect()
        gc.freeze()
        return np.array([self.step() for _ in range(_STEPS - 300)])


def main(argv: list[str]) -> int:
    """Print a line for each number of rows."""
    unit = yardstick()
    sys.stdout.write(f"yardstick (100k additions in Python): {unit * 1e3:.2f} ms\n")
    for rows in [int(word) for word in argv[1:]] or [1, 64, 256, 1024]:
        times = DecodeBench(rows).run() * 1e6
        median, tail = np.percentile(times, [50, 99])
        sys.stdout.write(
            f"{rows:5d} rows: median {median:6.0f} us, p99 {tail:6.0f} us, "
            f"{median / 1e6 / unit:.4f} yardsticks, {rows / median:.2f} tokens/us\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
