"""A core, its clients and one worker in simulated time: a minute of load is computed in seconds."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...protocol.codec import FINGERPRINT
from ...protocol.columns import unpack_i32, unpack_i64
from ...protocol.config import SchedulerConfig
from ...protocol.ids import FinishReason
from ...protocol.lifecycle import KVGroup, WorkerHello, WorkerReady
from ...protocol.replies import Accepted, Deltas, Rejected
from ...protocol.requests import Alive, Submit
from ...protocol.sampling import SamplingParams
from ...protocol.step_cost import H200_8B, StepCost
from ...protocol.steps import StepPlan, StepResult
from ..core.commands import Command, SendClient, SendWorker
from ..core.events import FromClient, FromWorker, Turn
from ..core.scheduler import Scheduler
from ..core.state import Identity
from .traces import VOCAB, Arrival

_END = 2  # the token that ends an answer
_WORD = 7  # the token that does not
_CLIENT = b"study"
_BEAT = 5.0  # seconds between two signs of life of the client


@dataclass(slots=True)
class Outcome:
    """What became of one request."""

    arrival: Arrival
    accepted: Accepted | None = None
    rejected: Rejected | None = None
    finish: FinishReason = FinishReason.NONE
    num_cached: int = 0
    queued_ms: float = 0.0
    tokens: list[float] = field(default_factory=list)  # when each token came, in seconds

    @property
    def ttft(self) -> float:
        """Seconds to the first token; infinity without one."""
        return self.tokens[0] - self.arrival.at if self.tokens else float("inf")

    @property
    def itl(self) -> float:
        """Mean seconds between tokens, 0 for a single one."""
        return (self.tokens[-1] - self.tokens[0]) / (len(self.tokens) - 1) if len(self.tokens) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class StepSeen:
    """One step, for plots."""

    at: float  # it ended
    seconds: float
    rows: int
    tokens: int
    waiting: int
    blocks: int  # live


class Simulation:
    """Runs one trace. `config` replaces fields of the scheduler's configuration."""

    def __init__(
        self,
        trace: Sequence[Arrival],
        *,
        cost: StepCost = H200_8B,
        num_blocks: int = 12_000,
        block_size: int = 64,
        **config: object,
    ) -> None:
        values: dict[str, object] = {
            "run_dir": "",
            "client_endpoint": "",
            "worker_endpoint": "",
            "lifeline_fd": -1,
            "parent_pid": 0,
            "model": "study",
            "vocab_size": VOCAB,
            "max_model_len": 131_072,
            "eos_token_ids": (_END,),
        }
        self.config = SchedulerConfig(**(values | config))  # type: ignore[arg-type]
        self.core = Scheduler(self.config, Identity(1, b"k" * 32))
        self.outcomes = [Outcome(arrival) for arrival in trace]
        self.steps: list[StepSeen] = []
        self.now = 0.0
        self._cost = cost
        self._trace = trace
        self._next = 0  # arrival
        self._plans: deque[tuple[float, StepPlan]] = deque()  # when each ends
        self._free_at = 0.0  # when the worker has done all its plans
        self._drawn = np.zeros(self.config.max_num_seqs, np.int64)
        self._wanted = np.zeros(self.config.max_num_seqs, np.int64)
        self._begin(KVGroup(num_blocks, block_size))

    def _begin(self, blocks: KVGroup) -> None:
        rows, budget = self.config.max_num_seqs, self.config.max_num_batched_tokens
        self._do(self.core.handle(FromWorker(0.0, 0, 0, WorkerHello(FINGERPRINT, 1, 0, 0, 1))))
        ready = WorkerReady(1, (blocks,), rows, budget, VOCAB, ())
        self._do(self.core.handle(FromWorker(0.0, 0, 0, ready)))

    def run(self, until: float = float("inf")) -> "Simulation":
        """Go on until all requests have ended, or to a moment."""
        beat = 0.0
        while (moment := self._next_moment()) < min(until, float("inf")):
            self.now = max(self.now, moment)
            if self.now >= beat:
                beat = self.now + _BEAT
                self._do(self.core.handle(FromClient(self.now, _CLIENT, Alive())))
            while self._next < len(self._trace) and self._trace[self._next].at <= self.now:
                self._submit(self._next)
                self._next += 1
            if self._plans and self._plans[0][0] <= self.now:
                self._finish_step()
            self._do(self.core.handle(Turn(self.now)))
        return self

    def _next_moment(self) -> float:
        arrival = self._trace[self._next].at if self._next < len(self._trace) else float("inf")
        step = self._plans[0][0] if self._plans else float("inf")
        open_ones = arrival < float("inf") or step < float("inf") or self.core.engine_stats().waiting
        return min(arrival, step, self.core.next_turn()) if open_ones else float("inf")

    def _submit(self, number: int) -> None:
        arrival = self._trace[number]
        params = SamplingParams(max_tokens=arrival.max_tokens, timeout=arrival.timeout)
        submit = Submit(number, 0, f"r{number}", arrival.prompt, params, number, user=arrival.user)
        self._do(self.core.handle(FromClient(self.now, _CLIENT, submit)))

    def _do(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case SendWorker(message=StepPlan() as plan):
                    begins = max(self.now, self._free_at)
                    self._free_at = begins + self._apply(plan)
                    self._plans.append((self._free_at, plan))
                case SendClient(message=message):
                    self._take(message)

    def _apply(self, plan: StepPlan) -> float:
        """Seconds that the step will take."""
        start, count = (_column(column) for column in (plan.start, plan.num_tokens))
        chunks = count > 1
        attended = float((count[chunks] * (start[chunks] + count[chunks] / 2)).sum())
        seconds = self._cost.seconds(len(start), int(count.sum()), int((start + count).sum()), attended)
        stats = self.core.engine_stats()
        at = max(self.now, self._free_at) + seconds
        self.steps.append(
            StepSeen(at, seconds, len(start), int(count.sum()), stats.waiting, stats.blocks_live)
        )
        return seconds

    def _finish_step(self) -> None:
        ended, plan = self._plans.popleft()
        for new in plan.new:
            self._drawn[new.row] = len(new.tokens) // 4 - new.prompt_len
            self._wanted[new.row] = self._trace[new.seed].num_output
        rows = _column(plan.row)[_column(plan.samples).astype(bool)]
        self._drawn[rows] += 1
        tokens = np.where(self._drawn[rows] >= self._wanted[rows], _END, _WORD).astype(np.int32)
        result = StepResult(1, plan.step, rows.astype(np.int32).tobytes(), tokens.tobytes(), 0.0, 0.0)
        self._do(self.core.handle(FromWorker(ended, 0, 0, result)))

    def _take(self, message: object) -> None:
        match message:
            case Accepted():
                self.outcomes[message.request].accepted = message
            case Rejected():
                self.outcomes[message.request].rejected = message
            case Deltas():
                self._take_deltas(message)

    def _take_deltas(self, deltas: Deltas) -> None:
        requests = unpack_i64(deltas.request).tolist()
        counts, finishes = unpack_i32(deltas.count).tolist(), unpack_i32(deltas.finish).tolist()
        for number, count, finish in zip(requests, counts, finishes, strict=True):
            outcome = self.outcomes[number]
            outcome.tokens += [self.now] * count
            outcome.finish = FinishReason(finish)
        for start in deltas.starts:
            outcome = self.outcomes[requests[start.index]]
            outcome.num_cached, outcome.queued_ms = start.num_cached, start.queued_ms


def _column(column: bytes) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.frombuffer(column, np.int32).astype(np.int64)
