"""A step that only decodes, by rows and by how many requests wait meanwhile."""

import gc
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from ...protocol.codec import FINGERPRINT, client_decoder, encode, to_worker_decoder, worker_decoder
from ...protocol.columns import pack_i32
from ...protocol.config import SchedulerConfig
from ...protocol.lifecycle import KVGroup, WorkerHello, WorkerReady
from ...protocol.requests import Submit
from ...protocol.sampling import SamplingParams
from ...protocol.steps import StepPlan, StepResult
from ..core.commands import Command, SendWorker
from ..core.events import FromClient, FromWorker, Turn
from ..core.scheduler import Scheduler
from ..core.state import Identity

_STEPS = 2000
_WARM_STEPS = 200
_PROMPT = 100
_BLOCK = 64
_CLIENTS = 2
_LONGEST = _PROMPT + _WARM_STEPS + _STEPS + 100  # tokens of a request


class DecodeBench:
    """A core with `rows` choices that decode while `waiting` requests wait, and a stand-in for the worker."""

    def __init__(
        self,
        rows: int,
        waiting: int = 0,
        *,
        longest: int = _LONGEST,
        spare_rows: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`longest` is how many tokens a request may have; the memory suffices for one more of those."""
        self.rows, self.waiting = rows, waiting
        self._now, self._clock = 0.0, clock
        self._submitted = 0
        self._frames: deque[bytes] = deque()
        self._plans = to_worker_decoder()
        self._results, self._clients = worker_decoder(), client_decoder()
        config = SchedulerConfig(
            run_dir="",
            client_endpoint="",
            worker_endpoint="",
            lifeline_fd=-1,
            parent_pid=0,
            model="bench",
            vocab_size=1000,
            max_model_len=longest,
            eos_token_ids=(2,),
            max_num_seqs=rows + spare_rows,
            max_num_batched_tokens=max(2048, 2 * rows),
        )
        self.core = Scheduler(config, Identity(1, b"k" * 32))
        blocks = KVGroup(rows * (_LONGEST // _BLOCK + 2) + longest // _BLOCK, _BLOCK)
        budget = config.max_num_batched_tokens
        self.core.handle(FromWorker(0.0, 0, 0, WorkerHello(FINGERPRINT, 1, 0, 0, 1)))
        ready = WorkerReady(1, (blocks,), config.max_num_seqs, budget, 1000, ())
        self.core.handle(FromWorker(0.0, 0, 0, ready))
        for _ in range(rows + waiting):
            self._submit()
        self._keep(self.core.handle(Turn(0.0)))

    def _submit(self) -> None:
        """One more request; when some wait, its answer is short enough that the queue moves."""
        number = self._submitted
        self._submitted += 1
        prompt = pack_i32(3 + (number * 31 + at) % 900 for at in range(_PROMPT))
        params = SamplingParams(max_tokens=200 + number % 256 if self.waiting else _LONGEST - _PROMPT)
        submit = Submit(number, 0, f"r{number}", prompt, params, number)
        self.core.handle(FromClient(self._now, b"c%d" % (number % _CLIENTS), submit))

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

    def step(self, arriving: bytes = b"") -> float:
        """Seconds of one step, that of reading a client's message included."""
        frame = self._result()
        self._now += 0.01
        began = self._clock()
        self._keep(self.core.handle(FromWorker(self._now, 0, 0, self._results.decode(frame))))
        if arriving:
            self._keep(self.core.handle(FromClient(self._now, b"c0", self._clients.decode(arriving))))
        self._keep(self.core.handle(Turn(self._now)))
        return self._clock() - began

    def warm(self) -> None:
        """Go on until all rows decode."""
        while self.core.stats.generated_tokens < self.rows * 10:
            self.step()
        for _ in range(_WARM_STEPS):
            self.step()
        self.core.stats.take_step_times()
        gc.collect()
        gc.freeze()

    def run(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Seconds of each of many steps; whoever ended is followed by another request between two of them."""
        self.warm()
        times = []
        for _ in range(_STEPS - 300):
            times.append(self.step())
            while self.core.engine_stats().waiting < self.waiting:
                self._submit()
        return np.array(times)
