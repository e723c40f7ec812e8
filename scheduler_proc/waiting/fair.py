"""The order `fair`: tenants get equal shares of what is computed, or shares by weight.

Each tenant has a virtual counter of the tokens it was served, divided by its weight, and the waiting tenant
with the lowest counter is next. A tenant that comes back from a pause starts at the counter served last: a
pause saves nothing up. Source: Sheng et al. 2024, "Fairness in Serving Large Language Models" (VTC).
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...protocol.errors import UsageError
from ..core.request import Choice, Request
from .line import Line

_GENERATED = 2.0  # what a generated token counts, against 1 for one of a prompt: as in the source
_MOST_KEPT = 1024  # tenants, before some of those that pause are forgotten


def parse_weights(text: str) -> dict[str, float]:
    """Read `name=weight,...`. Raises UsageError that names the entry at fault."""
    weights: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, number = part.rpartition("=")
        try:
            weights[name.strip()] = weight = float(number)
        except ValueError:
            weight = 0.0
        if not name.strip() or not 0 < weight < float("inf"):
            raise UsageError(f"fair_weights are name=weight with a weight above 0, got {part!r}")
    return weights


@dataclass(slots=True, eq=False)
class _Tenant:
    name: str
    index: int  # of its counter
    weight: float
    line: Line = field(default_factory=Line)
    listed: bool = False  # it has an entry in the heap of waiting tenants
    open: int = 0  # requests that have not ended


class Fair:
    """A line for each tenant."""

    counts_tokens, preempts = True, False

    def __init__(self, weights: dict[str, float]) -> None:
        self._weights = weights
        self._tenants: dict[str, _Tenant] = {}
        self._counters: NDArray[np.float64] = np.zeros(16)
        self._scale: NDArray[np.float64] = np.ones(16)  # 1 / weight
        self._unused = list(range(15, -1, -1))
        self._waiting: list[tuple[float, int, _Tenant]] = []  # a heap by counter; an entry may be behind
        self._floor = 0.0  # the counter served last
        self._forget_at = _MOST_KEPT

    def arrive(self, request: Request, reading: float) -> None:
        tenant = self._tenants.get(request.user) or self._add(request.user)
        if not tenant.open:
            self._counters[tenant.index] = max(self._counters[tenant.index], self._floor)
        tenant.open += 1
        request.tenant = tenant.index

    def leave(self, request: Request) -> None:
        self._tenants[request.user].open -= 1

    def push(self, choice: Choice) -> None:
        tenant = self._tenants[choice.request.user]
        tenant.line.push(0.0, choice)
        self._list(tenant)

    def head(self, now: float) -> Choice | None:
        while self._waiting:
            counter, _, tenant = self._waiting[0]
            front = tenant.line.front()
            if front is None:
                heapq.heappop(self._waiting)
                tenant.listed = False
            elif counter < self._counters[tenant.index]:
                heapq.heappop(self._waiting)
                tenant.listed = False
                self._list(tenant)
            else:
                return front[1]
        return None

    def start(self, choice: Choice, tokens: int) -> None:
        index = choice.request.tenant
        # Its place while it runs: what its tenant is charged from now on must not put it behind others.
        choice.request.key = float(self._counters[index])
        self._floor = max(self._floor, choice.request.key)
        self._counters[index] += tokens * self._scale[index]

    def served(self, tenants: NDArray[np.int64]) -> None:
        np.add.at(self._counters, tenants, _GENERATED * self._scale[tenants])

    def place(self, request: Request) -> float:
        return request.key

    def outranks(self, request: Request, running: Request) -> bool:
        return False

    def lines(self) -> Iterable[Line]:
        return [tenant.line for tenant in self._tenants.values()]

    def _list(self, tenant: _Tenant) -> None:
        if not tenant.listed:
            tenant.listed = True
            heapq.heappush(self._waiting, (float(self._counters[tenant.index]), tenant.index, tenant))

    def _add(self, name: str) -> _Tenant:
        if len(self._tenants) >= self._forget_at:
            self._forget()
        if not self._unused:
            size = len(self._counters)
            self._counters = np.concatenate([self._counters, np.zeros(size)])
            self._scale = np.concatenate([self._scale, np.ones(size)])
            self._unused = list(range(2 * size - 1, size - 1, -1))
        tenant = _Tenant(name, self._unused.pop(), self._weights.get(name, 1.0))
        self._counters[tenant.index] = self._floor
        self._scale[tenant.index] = 1.0 / tenant.weight
        self._tenants[name] = tenant
        return tenant

    def _forget(self) -> None:
        """Drop those tenants without an open request that are least ahead of the counter served last."""
        idle = [tenant for tenant in self._tenants.values() if not tenant.open and not tenant.listed]
        idle.sort(key=lambda tenant: float(self._counters[tenant.index]))
        for tenant in idle[: len(idle) // 2 + 1]:
            self._unused.append(tenant.index)
            del self._tenants[tenant.name]
        self._forget_at = max(_MOST_KEPT, 2 * len(self._tenants))
