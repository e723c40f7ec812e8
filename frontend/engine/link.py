"""A client core's socket: greets every scheduler it meets, sends what the core wants sent, never blocks."""

import logging
import time

import zmq
from zmq.utils.monitor import recv_monitor_message

from ...protocol import channels, codec
from ...protocol.errors import ProtocolError
from ...protocol.ids import new_client
from .client_core import ClientCore
from .stream import Stream

_log = logging.getLogger(__name__)
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
SILENCE_SECONDS = 5.0  # a scheduler that answers nothing for so long is gone
# Messages taken or sent before the caller may do something else: reading must keep up with what is asked.
_AT_ONCE = 64


class Link:
    """The DEALER of one client. Not thread-safe.

    Attributes:
        more: there is more to read; `pump` is to be called again before waiting for the sockets.
        reachable: False once no scheduler has been met for a while.
    """

    def __init__(self, core: ClientCore, endpoint: str) -> None:
        self._core = core
        self._endpoint = endpoint
        self._decoder = codec.reply_decoder()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = channels.new_dealer(self._context, new_client(), endpoint)
        # Attached before the socket connects: a monitor attached later may miss the first handshake.
        self.monitor = self.socket.get_monitor_socket(_EVENTS)
        self.socket.connect(endpoint)
        self.more = False
        self.reachable = True
        self._connected = False
        self._lost = False  # the connection ended, and what that means for open requests is not decided
        self._silent = False  # connected to a scheduler that stopped answering
        self._away_since = time.monotonic()
        self._asked: float | None = None  # when the oldest unanswered question was sent

    def pump(self, at_once: int = _AT_ONCE) -> list[Stream]:
        """Read what has arrived and send what is to be sent; returns the streams that changed.

        Takes at most `at_once` messages.
        """
        changed = self._watch()
        self.flush()
        now, taken = time.monotonic(), 0
        # Sending may use up the edge of ZeroMQ's descriptor that announced a message, so reading is last.
        while True:
            if self._readable():
                if taken == at_once:
                    self.more = True
                    return changed
                taken += 1
                changed += self._take(self.socket.recv(zmq.DONTWAIT), now)
            elif not self.flush():
                self.more = False
                return changed

    def flush(self) -> bool:
        """Send some of what the core wants sent, as far as it fits; returns whether anything went out."""
        outgoing = self._core.outgoing
        if not self._connected or not outgoing:
            return False
        sent = 0
        for message in outgoing[:_AT_ONCE]:
            if channels.send(self.socket, codec.encode(message)) is not channels.Sent.OK:
                break
            sent += 1
        del outgoing[:sent]
        return sent > 0

    def beat(self, root_cause: str | None) -> list[Stream]:
        """To be called each second: shows life, and notices a scheduler that shows none.

        `root_cause` says why the engine died, if its owner knows that it did.
        """
        changed, now = self.pump(1), time.monotonic()
        if root_cause is not None:
            return changed + self._core.disconnected(root_cause, fatal=True)
        if self._lost:
            changed += self._give_up()
        if not self._connected:
            if self.reachable and now - self._away_since > SILENCE_SECONDS:
                self.reachable = False
                self._core.suspended(f"no scheduler answers at {self._endpoint}")
        elif self._asked is None:
            self._asked = now
            self._core.alive()
            self.flush()
        elif not self._silent and now - self._asked > SILENCE_SECONDS:
            self._silent = True
            changed += self._core.disconnected(f"the scheduler has been silent for {SILENCE_SECONDS:g} s")
        return changed

    def close(self) -> None:
        """Close the socket; what is open on it is lost. May be called twice."""
        if self.socket.closed:
            return
        self.flush()
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(0)
        self._context.term()

    def _readable(self) -> bool:
        return bool(int(self.socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    def _take(self, frame: bytes, now: float) -> list[Stream]:
        self._asked = None
        if self._silent:
            # It lives again, but what was open may have ended with its silence.
            self._silent = False
            self._core.connected()
        try:
            return self._core.on_message(self._decoder.decode(frame), now)
        except ProtocolError as error:
            _log.error("dropped a message of the scheduler: %s", error)
            return []

    def _watch(self) -> list[Stream]:
        """Follow the connection."""
        failed: list[Stream] = []
        while int(self.monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            event = recv_monitor_message(self.monitor)["event"]
            if self._lost:
                failed += self._give_up()
            self._connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            self._asked, self._silent = None, False
            if self._connected:
                self.reachable = True
                self._core.connected()
            else:
                # Who owns the processes can tell the cause a moment later: the next beat asks.
                self._lost, self._away_since = True, time.monotonic()
                self._core.suspended("the scheduler is gone")
        return failed

    def _give_up(self) -> list[Stream]:
        self._lost = False
        return self._core.disconnected("the scheduler is gone")
