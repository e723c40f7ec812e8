"""Who the clients are, and which requests of theirs are open."""

from dataclasses import dataclass, field

from ..core.request import Request

FRONTEND = "frontend-"  # what names of clients begin with that count for themselves what they deliver
SILENCE = 30.0  # seconds without a word after which a client with open requests is taken for dead


@dataclass(slots=True, eq=False)
class Client:
    """A peer of the client socket."""

    identity: bytes
    number: int  # small, unique in the life of the scheduler; used in columns
    heard: float  # when it last said something
    name: str = ""  # for logs
    refused: str = ""  # why it may not submit
    requests: dict[int, Request] = field(default_factory=dict)  # open ones, by the client's number

    @property
    def direct(self) -> bool:
        """Whether nobody but the scheduler counts its tokens."""
        return not self.name.startswith(FRONTEND)


class Clients:
    """Clients by identity and by number."""

    def __init__(self) -> None:
        self._by_identity: dict[bytes, Client] = {}
        self._by_number: dict[int, Client] = {}
        self._count = 0

    def heard(self, identity: bytes, now: float) -> Client:
        """The client of that identity, new if it was unknown."""
        client = self._by_identity.get(identity)
        if client is None:
            client = Client(identity, self._count, now)
            self._count += 1
            self._by_identity[identity] = self._by_number[client.number] = client
        client.heard = now
        return client

    def find(self, identity: bytes) -> Client | None:
        return self._by_identity.get(identity)

    def number(self, number: int) -> Client | None:
        """The client of that number, unless it is gone."""
        return self._by_number.get(number)

    def forget(self, client: Client) -> None:
        del self._by_identity[client.identity]
        del self._by_number[client.number]

    def silent(self, now: float) -> list[Client]:
        """Clients with open requests that have not been heard for too long."""
        return [
            client for client in self._by_number.values() if client.requests and now - client.heard >= SILENCE
        ]

    def next_silence(self) -> float:
        """When the next client could be taken for dead; infinity without open requests."""
        heard = [client.heard for client in self._by_number.values() if client.requests]
        return min(heard, default=float("inf")) + SILENCE

    def all(self) -> list[Client]:
        return list(self._by_number.values())
