"""In which order requests are taken from the queue, and who is preempted first: the last in that order."""

from typing import Protocol

from ..core.request import Request


class Order(Protocol):
    """A policy. Requests of equal keys go by arrival."""

    def key(self, request: Request) -> float:
        """Lower goes first. Asked once, when the request arrives."""


class Fcfs:
    """First come, first served."""

    def key(self, request: Request) -> float:
        return 0.0


class Priority:
    """By `priority`, lower first. Waiting ages a request by one class a period, so that none starves."""

    _PERIOD = 60.0  # seconds

    def key(self, request: Request) -> float:
        return request.priority + request.arrived / self._PERIOD


_ORDERS: dict[str, type[Fcfs] | type[Priority]] = {"fcfs": Fcfs, "priority": Priority}


def make_order(name: str) -> Order:
    """The policy of that name. Raises ValueError for an unknown one."""
    if name not in _ORDERS:
        raise ValueError(f"no scheduling policy {name!r}; there are {', '.join(_ORDERS)}")
    return _ORDERS[name]()
