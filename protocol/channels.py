"""The sockets processes talk on, with one set of options and one way to send.

All sends are non-blocking: a peer that is slow or gone is the caller's decision, never a stalled loop.
"""

from enum import Enum, auto

import zmq

from .codec import MAX_FRAME

COPY_BELOW = 64 << 10  # bytes; handing a smaller frame to ZeroMQ without a copy costs more than the copy
HEARTBEAT_MS = 1000
DEAD_AFTER_MS = 5000
SUPERVISOR = b"supervisor"  # identity, among workers, of whoever started them
_QUEUE = 1000  # messages a peer may lag behind


class Sent(Enum):
    """What became of a non-blocking send."""

    OK = auto()
    FULL = auto()  # the peer does not read; try again later
    GONE = auto()  # no such peer is connected


def _configure(socket: "zmq.Socket[bytes]") -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, _QUEUE)
    socket.setsockopt(zmq.RCVHWM, _QUEUE)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME + 1024)


def _heartbeat(socket: "zmq.Socket[bytes]") -> None:
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, DEAD_AFTER_MS)
    socket.setsockopt(zmq.HEARTBEAT_TTL, DEAD_AFTER_MS)


def bind_router(context: "zmq.Context[zmq.Socket[bytes]]", *endpoints: str) -> "zmq.Socket[bytes]":
    """A ROUTER that reports unknown and full peers, and lets a reconnecting peer take its identity over.

    It sends no heartbeats: libzmq 4.3 ends the whole process (`Assertion failed: !_io_error`) when one falls
    due for a peer that left while the queue of its unread messages was full. A peer that sends heartbeats
    tells this socket, with their time to live, when to take it for dead.

    Raises zmq.ZMQError when an endpoint cannot be bound.
    """
    socket = context.socket(zmq.ROUTER)
    _configure(socket)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
    try:
        for endpoint in endpoints:
            socket.bind(endpoint)
    except zmq.ZMQError:
        socket.close()
        raise
    return socket


def new_dealer(
    context: "zmq.Context[zmq.Socket[bytes]]", identity: bytes, endpoint: str
) -> "zmq.Socket[bytes]":
    """A DEALER for a `bind_router` socket at `endpoint`, which will know it as `identity`; not connected yet.

    Over tcp it sends heartbeats. On one machine the kernel tells at once when a peer dies, and a heartbeat
    would cut off a peer that merely does not read for a while.
    """
    socket = context.socket(zmq.DEALER)
    _configure(socket)
    if endpoint.startswith("tcp://"):
        _heartbeat(socket)
    socket.setsockopt(zmq.IDENTITY, identity)
    return socket


def send_to(socket: "zmq.Socket[bytes]", identity: bytes, frame: bytes) -> Sent:
    """Send a frame to one peer of a ROUTER."""
    try:
        socket.send_multipart([identity, frame], zmq.DONTWAIT, copy=len(frame) < COPY_BELOW)
    except zmq.Again:
        return Sent.FULL
    except zmq.ZMQError as error:
        if error.errno != zmq.EHOSTUNREACH:
            raise
        return Sent.GONE
    return Sent.OK


def send(socket: "zmq.Socket[bytes]", frame: bytes) -> Sent:
    """Send a frame from a DEALER."""
    try:
        socket.send(frame, zmq.DONTWAIT, copy=len(frame) < COPY_BELOW)
    except zmq.Again:
        return Sent.FULL
    return Sent.OK
