"""Everything the scheduler knows, in one place; the modules beside it change it, each in its own way."""

import heapq
import logging
from dataclasses import dataclass, field

from ...protocol.base import Message
from ...protocol.config import SchedulerConfig
from ...protocol.lifecycle import ModelLimits
from ...protocol.replies import SchedulerReply
from ..batching.forecast import QueueForecast
from ..batching.lengths import OutputLengths
from ..batching.order import Order, make_order
from ..batching.waiting import Waiting
from ..batching.worker import Rank, Worker
from ..clients.deltas import DeltaBook
from ..clients.registry import Clients
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
    workers: list[Worker]
    clients: Clients = field(default_factory=Clients)
    waiting: Waiting = field(default_factory=Waiting)
    lengths: OutputLengths = field(default_factory=OutputLengths)
    forecast: QueueForecast = field(default_factory=QueueForecast)
    deltas: DeltaBook = field(default_factory=DeltaBook)
    stories: Stories = field(default_factory=Stories)
    stats: Stats = field(default_factory=Stats)
    out: list[Command] = field(default_factory=list)
    told_ready: bool = False  # what clients know
    serials: int = 0
    _deadlines: list[tuple[float, int]] = field(default_factory=list)  # a heap, with serials of requests
    _timed: dict[int, Request] = field(default_factory=dict)  # open requests with a deadline, by serial

    @classmethod
    def make(cls, config: SchedulerConfig, identity: Identity) -> "SchedulerState":
        workers = [
            Worker(index, [Rank() for _ in range(config.group_size)]) for index in range(config.num_groups)
        ]
        return cls(config, identity, make_order(config.scheduling_policy), workers)

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
