"""The worker's end of its wire to the scheduler."""

import logging
import os
import socket
import threading

import zmq
from zmq.utils.monitor import recv_monitor_message

from ..protocol import channels, codec
from ..protocol.base import Message
from ..protocol.config import WorkerConfig
from ..protocol.errors import ProtocolError
from ..protocol.ids import new_incarnation
from ..protocol.lifecycle import WorkerFailed, WorkerHello, WorkerProgress, WorkerReady
from ..protocol.steps import ToWorker
from .phases import StartPhases

_log = logging.getLogger(__name__)

_LAST_WORDS_MS = 500
_PROGRESS_SECONDS = 1.0


class SchedulerLink:
    """A socket that introduces this worker to every scheduler it meets.

    A scheduler may start after the worker or be replaced while the worker lives: each completed handshake
    is answered with `WorkerHello`, and with `WorkerReady` once there is one. Not thread-safe, but it may be
    handed from one thread to another that starts or joins the first.
    """

    def __init__(self, config: WorkerConfig) -> None:
        self.incarnation = new_incarnation()
        self._hello = WorkerHello(
            fingerprint=codec.FINGERPRINT,
            incarnation=self.incarnation,
            group=config.group,
            rank=config.rank,
            pid=os.getpid(),
        )
        self._ready: WorkerReady | None = None
        self._decoder = codec.to_worker_decoder()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        identity = b"w%d.%d" % (config.group, config.rank)
        self.socket = channels.new_dealer(self._context, identity, config.scheduler_endpoint)
        self.monitor = self.socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        self.socket.connect(config.scheduler_endpoint)
        self._connected = False

    def greet(self) -> bool:
        """Read what happened to the connection, and introduce this worker where it is new.

        Returns whether it did so: nobody waits any more for what it was told before.
        """
        greeted = False
        while self.monitor.poll(0):
            self._connected = recv_monitor_message(self.monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if self._connected:
                greeted = True
                self.send(self._hello)
                if self._ready is not None:
                    self.send(self._ready)
        return greeted

    def announce(self, ready: WorkerReady) -> None:
        """The worker can execute plans: say so now if a scheduler is there, and to any that comes."""
        self._ready = ready
        if self._connected:
            self.send(ready)

    def report(self, phases: StartPhases) -> None:
        """Say what the start is doing. Nothing is queued for a scheduler that is not there."""
        if self._connected:
            self.send(WorkerProgress(self.incarnation, phases.current, phases.fraction))

    def send(self, message: Message) -> None:
        """Send without waiting. A peer that left a thousand messages unread is dead: the rest is dropped."""
        if channels.send(self.socket, codec.encode(message)) is not channels.Sent.OK:
            _log.warning("the scheduler does not read; dropped a %s", type(message).__name__)

    def receive(self) -> ToWorker | None:
        """The next message if one has arrived. One that does not decode is logged and skipped."""
        while self.socket.poll(0):
            try:
                return self._decoder.decode(self.socket.recv(zmq.DONTWAIT))
            except ProtocolError as error:
                _log.error("dropped a message of the scheduler: %s", error)
        return None

    def close(self, failure: WorkerFailed | None = None) -> None:
        """Send last words if there are any, and close."""
        if failure is not None:
            self.greet()
            self.send(failure)
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(_LAST_WORDS_MS)
        self._context.term()


class Announcer:
    """Keeps the link alive from a thread of its own while the main thread loads."""

    def __init__(self, link: SchedulerLink, phases: StartPhases) -> None:
        self._link = link
        self._phases = phases
        self._stopped, self._stop = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="announcer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._link.monitor, zmq.POLLIN)
        poller.register(self._stopped, zmq.POLLIN)
        while self._stopped.fileno() not in dict(poller.poll(int(_PROGRESS_SECONDS * 1000))):
            self._link.greet()
            self._link.report(self._phases)

    def finish(self) -> None:
        """Hand the link back to the caller's thread."""
        self._stop.close()
        self._thread.join()
        self._stopped.close()
