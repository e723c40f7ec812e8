"""One worker group as the scheduler sees it: its ranks' lives, its rows, its memory, its steps in flight."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...protocol.lifecycle import KVGroup
from ..core.request import Choice
from ..memory.kv_cache import KVCache
from .followers import Followers
from .pace import StepPace
from .rows import Ints, Rows
from .step_model import StepModel, StepWork
from .trials import Trials

_INTERVAL_WEIGHT = 0.1


@dataclass(frozen=True, slots=True)
class Step:
    """A plan whose result has not arrived. `rows` and `tenancy` are its own map of row to choice."""

    number: int
    sent: float
    rows: Ints  # [R] scheduled rows
    tenancy: Ints  # [R] whose they were
    end: Ints  # [R] position behind the last token computed
    sampled: Ints  # [S] indexes into the R columns
    num_tokens: int  # it computes
    sampled_rows: bytes  # int32 column of the S rows, as the result will name them
    chunk_rows: tuple[int, ...]  # rows that read part of a prompt
    work: StepWork


@dataclass(slots=True)
class Rank:
    """One process of a worker group."""

    incarnation: int = -1  # -1: none has said hello
    ready: bool = False
    pid: int = -1  # of its process


@dataclass(slots=True)
class Worker:
    """A worker group. Rows and memory exist while it is ready."""

    index: int
    ranks: list[Rank]
    condition: str = "waiting for the worker"  # why it is not ready, for people
    session: int = 0  # counts lives of this worker; a plan of a new session makes it forget all rows
    last_step: int = 0  # of this session
    kv: KVCache | None = None
    rows: Rows = field(default_factory=lambda: Rows(0))
    budget: int = 0  # tokens a step may compute
    flight: deque[Step] = field(default_factory=deque)
    pace: StepPace = field(default_factory=StepPace)
    next_row: int = 0  # where rows go on to take turns when not all can decode
    released: list[int] = field(default_factory=list)  # rows freed since the last plan
    num_released: int = 0  # rows freed ever
    refused: tuple[int, int] = (-1, -1)  # ticket the forecast refused, and num_released then
    late: dict[int, Choice] = field(default_factory=dict)  # by tenancy: preempted with tokens in flight
    followers: Followers = field(default_factory=Followers)
    model: StepModel = field(default_factory=StepModel)
    flown: list[Choice] = field(default_factory=list)  # in flight when the worker was lost
    trials: Trials = field(default_factory=Trials)
    last_result: float = 0.0  # when the newest result was applied
    interval: float = 0.0  # smoothed seconds from result to result

    @property
    def ready(self) -> bool:
        return self.kv is not None

    @property
    def memory(self) -> KVCache:
        """The KV memory of a ready worker."""
        if self.kv is None:
            raise RuntimeError(f"worker {self.index} has no memory: {self.condition}")
        return self.kv

    def open(self, specs: tuple[KVGroup, ...], num_rows: int, budget: int, *, caching: bool) -> None:
        """All ranks are ready: start with empty rows and empty memory."""
        self.session += 1
        self.last_step = 0
        self.kv = KVCache(specs, num_rows, caching=caching)
        self.rows = Rows(num_rows)
        self.budget = budget
        self.condition = ""
        self.flown.clear()

    def close(self, condition: str) -> list[Choice]:
        """The worker lost its state. Returns the choices that ran there, their known tokens complete."""
        flying = [self.rows.at(row) for row in self.in_flight().nonzero()[0].tolist()]
        self.flown = [*flying, *self.late.values()]
        lost = [self.rows.release(row) for row in self.rows.taken().tolist()]
        for choice in (*lost, *self.late.values()):
            choice.pending = 0
        self.kv, self.rows, self.condition = None, Rows(0), condition
        self.flight.clear()
        self.released.clear()
        self.late.clear()
        self.followers.close()
        return lost

    def release(self, row: int) -> Choice:
        """Free a row and its blocks; the next plan tells the worker."""
        self.memory.release(row)
        self.followers.lost(row)
        self.released.append(row)
        self.num_released += 1
        return self.rows.release(row)

    def note_step(self, step: Step, now: float) -> None:
        """A step's result arrived: learn what such a step takes."""
        seconds = now - max(step.sent, self.last_result)
        self.model.learn(step.work, seconds)
        self.pace.took(seconds, step.num_tokens)
        self.interval += (seconds - self.interval) * (_INTERVAL_WEIGHT if self.interval else 1.0)
        self.last_result = now

    def in_flight(self) -> NDArray[np.bool_]:
        """[rows] whether a step in flight computes the row for its present choice."""
        mask = np.zeros(self.rows.count, np.bool_)
        for step in self.flight:
            mask[step.rows] |= self.rows.tenancy[step.rows] == step.tenancy
        return mask
