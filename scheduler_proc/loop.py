"""The loop around the core: sockets, the clock, the log. Everything impure about a step is here."""

import logging
import time
from collections.abc import Callable

import zmq

from ..protocol.base import Message
from ..protocol.channels import SUPERVISOR, Sent, bind_router, send_to
from ..protocol.codec import client_decoder, encode, supervisor_decoder, worker_decoder
from ..protocol.config import SchedulerConfig
from ..protocol.errors import ProtocolError
from ..protocol.lifecycle import Stop
from .core.commands import Command, Log, SendClient, SendSupervisor, SendWorker
from .core.events import (
    ClientGone,
    ClientSlow,
    Event,
    FromClient,
    FromSupervisor,
    FromWorker,
    Turn,
    WorkerGone,
)
from .core.scheduler import Scheduler
from .journal import Journal
from .metrics import Metrics
from .outbox import Kept, Outbox

_log = logging.getLogger(__name__)

_BATCH = 100  # messages taken from a socket before the core has its turn: who floods delays others little
_RETRY_SECONDS = 0.02  # how soon a full client is tried again
_METRICS_SECONDS = 0.1
_LAST_WORDS_MS = 500
_BAD_FRAME_SECONDS = 1.0  # at most one line about bad frames in this time

Socket = zmq.Socket[bytes]


class Loop:
    """Runs a core until `stop` is readable. Raises zmq.ZMQError when an endpoint cannot be bound."""

    def __init__(
        self,
        config: SchedulerConfig,
        core: Scheduler,
        *,
        stop_fd: int,
        journal: Journal | None = None,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._core, self._journal, self._metrics, self._clock = (
            config,
            core,
            journal,
            metrics,
            clock,
        )
        self._context: zmq.Context[Socket] = zmq.Context()
        self._clients = bind_router(self._context, config.client_endpoint, *config.extra_endpoints)
        self._workers = bind_router(self._context, config.worker_endpoint)
        self._from_client, self._from_worker = client_decoder(), worker_decoder()
        self._from_supervisor = supervisor_decoder()
        self._outbox = Outbox()
        self._stop_fd = stop_fd
        self._poller = zmq.Poller()
        for source in (self._clients, self._workers, stop_fd):
            self._poller.register(source, zmq.POLLIN)
        self._bad_frames, self._bad_logged = 0, float("-inf")
        self._measured, self._exported = list[float](), float("-inf")

    def run(self) -> None:
        """Serve until told to stop; then tell the workers."""
        try:
            while True:
                ready = self._wait()
                if self._stop_fd in ready:
                    return
                self._serve(ready)
        finally:
            self._close()

    def _wait(self) -> dict[object, int]:
        """Which sockets can be read; empty when a turn is due by the clock."""
        if self._config.poll_us and self._core.busy:
            end = time.perf_counter() + self._config.poll_us / 1e6
            while time.perf_counter() < end:
                if ready := dict(self._poller.poll(0)):
                    return ready
        now = self._clock()
        if not self._core.busy:
            self._core.check_idle()
        if not self._core.busy or now - self._exported >= _METRICS_SECONDS:
            self._export(now)
        due = min(self._core.next_turn(), now + _RETRY_SECONDS if self._outbox else float("inf"))
        return dict(self._poller.poll(None if due == float("inf") else int(max(0.0, due - now) * 1e3) + 1))

    def _serve(self, ready: dict[object, int]) -> None:
        """Hand over all that waits, give the core its turn, and do what it says."""
        began = time.perf_counter()
        if self._workers in ready:
            self._receive(self._workers, self._worker_event)
        if self._clients in ready:
            self._receive(self._clients, self._client_event)
        self._handle(Turn(self._clock()))
        self._flush_outbox()
        if self._workers in ready:
            self._measured.append(time.perf_counter() - began)

    def _receive(self, socket: Socket, event: Callable[[bytes, bytes], Event]) -> None:
        for _ in range(_BATCH):
            try:
                parts = socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            try:
                if len(parts) != 2:
                    raise ProtocolError(f"a message of {len(parts) - 1} frames instead of one")
                received = event(parts[0], parts[1])
            except ProtocolError as error:
                self._bad_frame(parts[0], error)
                continue
            self._handle(received)

    def _client_event(self, identity: bytes, frame: bytes) -> Event:
        return FromClient(self._clock(), identity, self._from_client.decode(frame))

    def _worker_event(self, identity: bytes, frame: bytes) -> Event:
        if identity == SUPERVISOR:
            return FromSupervisor(self._clock(), self._from_supervisor.decode(frame))
        worker, _, rank = identity[1:].partition(b".")
        if identity[:1] != b"w" or not worker.isdigit() or not rank.isdigit():
            raise ProtocolError(f"no worker is called {identity!r}")
        return FromWorker(self._clock(), int(worker), int(rank), self._from_worker.decode(frame))

    def _bad_frame(self, identity: bytes, error: ProtocolError) -> None:
        self._bad_frames += 1
        now = self._clock()
        if now - self._bad_logged >= _BAD_FRAME_SECONDS:
            _log.warning("dropped %d bad frames, the last from %r: %s", self._bad_frames, identity, error)
            self._bad_frames, self._bad_logged = 0, now

    def _handle(self, event: Event) -> None:
        """Hand an event to the core and do what it says, and so on with what comes of that."""
        events = [event]
        while events:
            event = events.pop(0)
            commands = self._core.handle(event)
            if self._journal is not None:
                self._journal.record(event, commands)
            for command in commands:
                self._do(command, events)

    def _do(self, command: Command, events: list[Event]) -> None:
        match command:
            case SendWorker(worker=worker, rank=rank, message=message):
                if send_to(self._workers, b"w%d.%d" % (worker, rank), encode(message)) is not Sent.OK:
                    # A worker has at most a few messages on their way, so a full one is a dead one.
                    events.append(WorkerGone(self._clock(), worker, rank))
            case SendClient(client=client, message=reply):
                self._send_client(client, reply, events)
            case SendSupervisor(message=answer):
                send_to(self._workers, SUPERVISOR, encode(answer))  # it asks again
            case Log(level=level, text=text):
                _log.log(level, "%s", text)

    def _send_client(self, client: bytes, message: Message, events: list[Event]) -> None:
        sent = Sent.FULL if client in self._outbox else send_to(self._clients, client, encode(message))
        kept = self._outbox.keep(client, message) if sent is Sent.FULL else Kept.OK
        if sent is Sent.GONE or kept is Kept.HOPELESS:
            self._outbox.drop(client)
            events.append(ClientGone(self._clock(), client))
        elif kept is Kept.TOO_MUCH:
            # What ends its requests is told behind what is kept, should the client read again.
            events.append(ClientSlow(self._clock(), client))

    def _flush_outbox(self) -> None:
        for client in self._outbox.clients():
            while client in self._outbox:
                sent = send_to(self._clients, client, encode(self._outbox.first(client)))
                if sent is Sent.FULL:
                    break
                if sent is Sent.GONE:
                    self._outbox.drop(client)
                    self._handle(ClientGone(self._clock(), client))
                    break
                self._outbox.sent(client)

    def _export(self, now: float) -> None:
        self._exported = now
        measured, self._measured = self._measured, []
        if self._metrics is not None:
            active = self._journal is not None and self._journal.active
            self._metrics.update(self._core.stats, self._core.engine_stats(), measured, journal_active=active)

    def _close(self) -> None:
        stop = encode(Stop())
        for worker in range(self._config.num_groups):
            for rank in range(self._config.group_size):
                send_to(self._workers, b"w%d.%d" % (worker, rank), stop)
        if self._journal is not None:
            self._journal.close()
        self._clients.close(0)
        self._workers.close(_LAST_WORDS_MS)
        self._context.term()
