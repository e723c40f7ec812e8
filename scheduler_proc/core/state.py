"""Everything the scheduler knows, in one place; the modules beside it change it, each in its own way."""

import heapq
import logging
from dataclasses import dataclass, field

from ...protocol.base import Message
from ...protocol.config import SchedulerConfig
from ...protocol.lifecycle import ModelLimits
from ...protocol.replies import SchedulerReply
from ..batching.forecast import Queue, QueueForecast
from ..batching.lengths import OutputLengths
from ..batching.worker import Rank, Worker
from ..clients.deltas import DeltaBook
from ..clients.registry import Clients
from ..waiting.order import Order
from ..waiting.orders import make_order
from ..waiting.queue import Waiting
from ..waiting.reasons import MEMORY
from .commands import Command, Log, SendClient
from .request import Request
from .stats import Stats
from .story import Stories


class Identity(Message, frozen=True):
    """What a scheduler draws when it starts; a replay needs the same."""

    incarnation: int
    digest_key: bytes  # 32 random bytes: names of prefixes cannot be guessed


@dataclass(slots=True)
class SchedulerState:
    """The state of the machine."""

    config: SchedulerConfig
    identity: Identity
    order: Order
    waiting: Waiting
    workers: list[Worker]
    lengths: OutputLengths
    forecast: QueueForecast
    clients: Clients = field(default_factory=Clients)
    deltas: DeltaBook = field(default_factory=DeltaBook)
    stories: Stories = field(default_factory=Stories)
    stats: Stats = field(default_factory=Stats)
    out: list[Command] = field(default_factory=list)
    gather_until: float = float("inf")  # when the prompts collected so far are to start
    searching: bool = False  # the search of a cache goes on with the next turn
    told_ready: bool = False  # what clients know
    supervised: bool = False  # somebody has asked for progress
    owed: int | None = None  # token of the answer that is owed for it
    serials: int = 0
    _deadlines: list[tuple[float, int]] = field(default_factory=list)  # a heap, with serials of requests
    _timed: dict[int, Request] = field(default_factory=dict)  # open requests with a deadline, by serial

    @classmethod
    def make(cls, config: SchedulerConfig, identity: Identity) -> "SchedulerState":
        workers = [
            Worker(index, [Rank() for _ in range(config.group_size)]) for index in range(config.num_groups)
        ]
        order = make_order(config)
        lengths = OutputLengths()
        forecast = QueueForecast(lengths, config.target_itl_ms / 1e3)
        return cls(config, identity, order, Waiting(order), workers, lengths, forecast)

    @property
    def target_itl(self) -> float:
        """Seconds that a step with decodes should not pass; 0: no target."""
        return self.config.target_itl_ms / 1e3

    def reading_seconds(self, num_tokens: int) -> float:
        """How long the reading of a prompt takes once it is planned, 0 while no step has been seen.

        The steps in flight come first, and its own are shared with others.
        """
        depth = self.config.pipeline_depth
        known = [worker for worker in self.workers if worker.ready and worker.model.count]
        return min(
            (worker.model.reading(num_tokens, worker.budget) + depth * worker.interval for worker in known),
            default=0.0,
        )

    def wait_forecast(self) -> float:
        """Seconds until a request that comes now, behind all that wait, is first computed; -1: unknown."""
        waiting = self.waiting
        if not waiting.num_choices and any(worker.rows.num_free for worker in self.workers):
            return 0.0
        restarts = waiting.num_choices - waiting.num_new
        queue = Queue(waiting.new, restarts, uses_free=waiting.blocked not in MEMORY)
        # Rounded: the last digits of sums over arrays are the machine's, and a replay gives the same.
        return round(self.forecast.wait(self.workers, queue), 3)

    def send(self, client: bytes, message: SchedulerReply) -> None:
        self.out.append(SendClient(client, message))

    def log(self, level: int, text: str) -> None:
        self.out.append(Log(level, text))

    def warn(self, text: str) -> None:
        self.log(logging.WARNING, text)

    def limits(self) -> ModelLimits:
        """What a request must obey; the memory's bound is known once a worker is ready."""
        longest = self.config.max_model_len
        known = [worker.memory.max_request_tokens(longest) for worker in self.workers if worker.ready]
        return ModelLimits(
            model=self.config.model,
            vocab_size=self.config.vocab_size,
            max_model_len=longest,
            max_request_tokens=min(known, default=longest),
            eos_token_ids=self.config.eos_token_ids,
        )

    def readiness(self) -> tuple[bool, str]:
        """Whether a generation could run now, and why not."""
        reasons = [worker.condition for worker in self.workers if not worker.ready]
        return len(reasons) < len(self.workers), "; ".join(reasons)

    def watch_deadline(self, request: Request) -> None:
        """From now on the request may expire."""
        if request.deadline < float("inf"):
            heapq.heappush(self._deadlines, (request.deadline, request.serial))
            self._timed[request.serial] = request

    def unwatch_deadline(self, request: Request) -> None:
        """The request ended; its place in the heap remembers no more than its serial."""
        self._timed.pop(request.serial, None)

    def expired(self, now: float) -> list[Request]:
        """Open requests whose deadline has passed; each is returned once."""
        found = []
        while self._deadlines and (self._deadlines[0][0] <= now or self._deadlines[0][1] not in self._timed):
            request = self._timed.pop(heapq.heappop(self._deadlines)[1], None)
            if request is not None:
                found.append(request)
        return found

    def next_deadline(self) -> float:
        """When the next request expires, or did; infinity when none can."""
        return self._deadlines[0][0] if self._deadlines else float("inf")
