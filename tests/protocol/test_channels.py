"""Sockets: sends never block, and what became of each is known."""

import time
from collections.abc import Callable, Iterator

import pytest
import zmq

from octavo.protocol.channels import COPY_BELOW, Sent, bind_router, new_dealer, send, send_to

Socket = zmq.Socket[bytes]

PATIENCE_MS = 10_000
ENDPOINT = "inproc://peers"


class Wire:
    """A router, and the dealers of a test; all are closed with it."""

    def __init__(self, endpoint: str = ENDPOINT) -> None:
        self.context: zmq.Context[Socket] = zmq.Context()
        self.router = bind_router(self.context, endpoint)
        self.endpoint = self.router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._dealers: list[Socket] = []

    def dealer(self, identity: bytes, endpoint: str = "") -> Socket:
        self._dealers.append(new_dealer(self.context, identity, endpoint or self.endpoint))
        self._dealers[-1].connect(endpoint or self.endpoint)
        return self._dealers[-1]

    def known(self, identity: bytes) -> Socket:
        """A dealer from which the router has heard."""
        dealer = self.dealer(identity)
        assert send(dealer, b"hello") is Sent.OK
        assert receive(self.router) == [identity, b"hello"]
        return dealer

    def close(self) -> None:
        for socket in (self.router, *self._dealers):
            socket.close()
        self.context.term()


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


def receive(socket: Socket) -> list[bytes]:
    assert socket.poll(PATIENCE_MS), "nothing comes"
    return socket.recv_multipart()


def fill(send_one: Callable[[], Sent]) -> int:
    """Send until the peer counts as full; returns how many were taken."""
    sent = 0
    while send_one() is Sent.OK:
        sent += 1
        assert sent < 100_000, "nothing bounds what waits for a peer"
    return sent


def test_a_router_knows_a_dealer_by_its_identity(wire: Wire) -> None:
    dealer = wire.known(b"cme")
    assert send_to(wire.router, b"cme", b"answer") is Sent.OK
    assert receive(dealer) == [b"answer"]


@pytest.mark.parametrize("size", [0, 1, COPY_BELOW - 1, COPY_BELOW, 5 << 20])
def test_frames_of_any_size_arrive(wire: Wire, size: int) -> None:
    dealer = wire.known(b"cme")
    frame = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert send_to(wire.router, b"cme", frame) is Sent.OK
    assert receive(dealer) == [frame]


def test_a_peer_that_never_came_is_gone(wire: Wire) -> None:
    assert send_to(wire.router, b"cnobody", b"x") is Sent.GONE


def test_a_peer_that_left_is_gone(wire: Wire) -> None:
    wire.known(b"cme").close()
    deadline = time.monotonic() + PATIENCE_MS / 1e3
    while send_to(wire.router, b"cme", b"x") is not Sent.GONE:
        assert time.monotonic() < deadline, "the router never notices"
        wire.router.poll(1)


def test_a_peer_that_does_not_read_is_full_and_blocks_nobody(wire: Wire) -> None:
    asleep, awake = wire.known(b"casleep"), wire.known(b"cawake")
    sent = fill(lambda: send_to(wire.router, b"casleep", b"x"))
    assert send_to(wire.router, b"cawake", b"x") is Sent.OK
    assert receive(awake) == [b"x"]
    assert [receive(asleep) for _ in range(sent)] == [[b"x"]] * sent


def test_a_dealer_without_a_peer_is_full_in_the_end(wire: Wire) -> None:
    dealer = wire.dealer(b"cme", "inproc://later")
    assert fill(lambda: send(dealer, b"x")) > 0


def test_a_new_life_takes_the_identity_over(wire: Wire) -> None:
    wire.known(b"w0.0")
    second = wire.known(b"w0.0")
    assert send_to(wire.router, b"w0.0", b"x") is Sent.OK
    assert receive(second) == [b"x"]


def test_an_oversized_frame_ends_the_connection_and_is_not_received() -> None:
    wire = Wire("tcp://127.0.0.1:*")
    dealer = wire.known(b"cbig")
    monitor = dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    assert send(dealer, bytes(wire.router.getsockopt(zmq.MAXMSGSIZE) + 1)) is Sent.OK
    assert monitor.poll(PATIENCE_MS), "the connection stays"
    assert not wire.router.poll(0)
    dealer.disable_monitor()
    monitor.close()
    wire.close()


def test_a_taken_endpoint_is_an_error() -> None:
    wire = Wire("tcp://127.0.0.1:*")
    with zmq.Context() as context, pytest.raises(zmq.ZMQError):
        bind_router(context, wire.endpoint)
    wire.close()


def test_only_dealers_of_other_machines_send_heartbeats() -> None:
    wire = Wire("tcp://127.0.0.1:*")
    local = wire.dealer(b"cipc", "ipc:///tmp/octavo-nobody-binds-this")
    sockets = (wire.router, local, wire.dealer(b"ctcp"))
    assert [socket.getsockopt(zmq.HEARTBEAT_IVL) for socket in sockets] == [0, 0, 1000]
    wire.close()
