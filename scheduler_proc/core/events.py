"""All that can happen to the scheduler. `now` is in seconds on a clock that never goes back."""

from ...protocol.base import Message
from ...protocol.lifecycle import SupervisorMessage
from ...protocol.requests import ClientMessage
from ...protocol.steps import WorkerMessage


class FromClient(Message, frozen=True):
    """A client said something."""

    now: float
    client: bytes  # ZeroMQ identity
    message: ClientMessage


class ClientGone(Message, frozen=True):
    """A client's socket does not exist any more."""

    now: float
    client: bytes


class ClientSlow(Message, frozen=True):
    """A client left so much unread that the bound on unsent bytes was passed."""

    now: float
    client: bytes


class FromWorker(Message, frozen=True):
    """A rank of a worker said something."""

    now: float
    worker: int  # worker group
    rank: int
    message: WorkerMessage


class WorkerGone(Message, frozen=True):
    """A rank of a worker cannot be reached any more."""

    now: float
    worker: int
    rank: int


class FromSupervisor(Message, frozen=True):
    """Whoever started the processes said something."""

    now: float
    message: SupervisorMessage


class Turn(Message, frozen=True):
    """All that was waiting has been handed over: look at the clock, plan steps, tell the clients."""

    now: float


Event = FromClient | ClientGone | ClientSlow | FromWorker | WorkerGone | FromSupervisor | Turn
