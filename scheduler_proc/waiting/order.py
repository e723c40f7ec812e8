"""In which order choices are taken from the queue, and who is preempted first: the last in that order."""

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..core.request import Choice, Request
from .line import Line


class Order(Protocol):
    """A policy: it holds the lines that choices wait in. None lets a request starve."""

    counts_tokens: bool  # whether `served` is of interest
    preempts: bool  # whether anything outranks anything

    def arrive(self, request: Request, reading: float) -> None:
        """A request was accepted; `reading` is how many seconds its prompt takes, 0 while unknown."""

    def leave(self, request: Request) -> None:
        """All choices of a request that arrived have ended."""

    def push(self, choice: Choice) -> None:
        """A choice waits, for the first time or again."""

    def head(self, now: float) -> Choice | None:
        """The choice that is next. It stays queued until its state or ticket changes."""

    def start(self, choice: Choice, tokens: int) -> None:
        """The head got a row, and `tokens` are to be computed before its next one is drawn."""

    def served(self, tenants: NDArray[np.int64]) -> None:
        """A token was generated for each of these tenants [n], which are `Request.tenant`."""

    def place(self, request: Request) -> float:
        """Where a running request stands: the lowest reads its prompt first, the highest is preempted."""

    def outranks(self, request: Request, running: Request) -> bool:
        """Whether `running` is to give up its row when `request` cannot start otherwise."""

    def lines(self) -> Iterable[Line]:
        """All lines, the one that is served next by default first."""


class Fcfs:
    """First come, first served."""

    counts_tokens = preempts = False

    def __init__(self) -> None:
        self._line = Line()

    def arrive(self, request: Request, reading: float) -> None:
        pass

    def leave(self, request: Request) -> None:
        pass

    def push(self, choice: Choice) -> None:
        self._line.push(choice.request.key, choice)

    def head(self, now: float) -> Choice | None:
        front = self._line.front()
        return front[1] if front else None

    def start(self, choice: Choice, tokens: int) -> None:
        pass

    def served(self, tenants: NDArray[np.int64]) -> None:
        pass

    def place(self, request: Request) -> float:
        return request.key

    def outranks(self, request: Request, running: Request) -> bool:
        return False

    def lines(self) -> Iterable[Line]:
        return (self._line,)


class Priority(Fcfs):
    """By `priority`, lower first. Waiting ages a request by one class a period, so that none starves."""

    preempts = True
    _PERIOD = 60.0  # seconds

    def arrive(self, request: Request, reading: float) -> None:
        request.key = request.priority + request.arrived / self._PERIOD

    def outranks(self, request: Request, running: Request) -> bool:
        return request.priority < running.priority and request.key < running.key
