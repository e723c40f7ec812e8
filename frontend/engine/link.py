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


class Link:
    """The DEALER of one client. Not thread-safe."""

    def __init__(self, core: ClientCore, endpoint: str) -> None:
        self._core = core
        self._decoder = codec.reply_decoder()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = channels.new_dealer(self._context, new_client())
        # Attached before the socket connects: a monitor attached later may miss the first handshake.
        self.monitor = self.socket.get_monitor_socket(_EVENTS)
        self.socket.connect(endpoint)
        self._connected = False
        self._silent = False  # still connected to ZeroMQ's mind, but nothing was heard
        self._asked: float | None = None  # when the oldest unanswered question was sent

    def pump(self) -> list[Stream]:
        """Read all that has arrived, send all that is to be sent; returns the streams that changed."""
        changed = self._watch()
        now = time.monotonic()
        while self.socket.poll(0):
            self._asked = None
            if self._silent:
                self._greet()  # it was taken for gone, and is not
            try:
                changed += self._core.on_message(self._decoder.decode(self.socket.recv(zmq.DONTWAIT)), now)
            except ProtocolError as error:
                _log.error("dropped a message of the scheduler: %s", error)
        self.flush()
        return changed

    def flush(self) -> None:
        """Send what the core wants sent; what does not fit now stays for the next time."""
        outgoing = self._core.outgoing
        if not self._connected:
            return
        sent = 0
        for message in outgoing:
            if channels.send(self.socket, codec.encode(message)) is not channels.Sent.OK:
                break
            sent += 1
        del outgoing[:sent]

    def beat(self, root_cause: str | None) -> list[Stream]:
        """To be called each second: shows life, and notices a scheduler that shows none.

        `root_cause` says why the engine died, if its owner knows that it did.
        """
        if root_cause is not None:
            return self._core.disconnected(root_cause, fatal=True)
        changed, now = self.pump(), time.monotonic()
        if self._connected and self._asked is not None and now - self._asked > SILENCE_SECONDS:
            self._connected, self._silent = False, True
            reason = f"the scheduler has been silent for {SILENCE_SECONDS:g} s"
            return changed + self._core.disconnected(reason)
        if self._connected:
            self._asked = self._asked or now
            self._core.alive()
            self.flush()
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

    def _greet(self) -> None:
        self._connected, self._silent, self._asked = True, False, None
        self._core.connected()

    def _watch(self) -> list[Stream]:
        failed: list[Stream] = []
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._greet()
            else:
                self._connected = self._silent = False
                failed += self._core.disconnected("the scheduler is gone")
        return failed
