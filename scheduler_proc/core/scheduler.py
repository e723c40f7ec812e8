"""The state machine: events in, commands out."""

from ...protocol.config import SchedulerConfig
from ...protocol.errors import RequestTimeoutError, SlowClientError
from ...protocol.ids import FinishReason
from ...protocol.replies import EngineStats
from . import doors, supervision, workers
from .commands import Command, SendClient
from .ends import end_request
from .events import ClientGone, ClientSlow, Event, FromClient, FromSupervisor, FromWorker, Turn, WorkerGone
from .request import TOKEN_BYTES
from .state import Identity, SchedulerState
from .stats import Stats
from .validate import validate, validate_idle


class Scheduler:
    """Requests, batches and memory of one server. Equal events give equal commands."""

    def __init__(self, config: SchedulerConfig, identity: Identity) -> None:
        self.state = SchedulerState.make(config, identity)

    def handle(self, event: Event) -> list[Command]:
        """What is to be done about an event, in order. Plans and deltas come with the next `Turn`."""
        state, now = self.state, event.now
        match event:
            case FromWorker(worker=index, rank=rank, message=message):
                workers.on_message(state, index, rank, message, now)
            case Turn():
                self._turn(now)
            case FromClient(client=identity, message=said):
                doors.on_message(state, identity, said, now)
            case ClientGone() | ClientSlow():
                self._lost(event, now)
            case WorkerGone(worker=index, rank=rank):
                workers.on_gone(state, index, rank, now)
            case FromSupervisor(message=told):
                supervision.on_message(state, told, now)
        if state.config.validate:
            validate(state)
        commands, state.out = state.out, []
        return commands

    def _lost(self, event: ClientGone | ClientSlow, now: float) -> None:
        client = self.state.clients.find(event.client)
        if client is None:
            return
        if isinstance(event, ClientGone):
            doors.drop_client(self.state, client, now, "gone")
        else:
            error = SlowClientError("the client does not read: too many tokens wait for it")
            doors.end_all(self.state, client, now, error)

    def _turn(self, now: float) -> None:
        state = self.state
        for request in state.expired(now):
            waited = now - request.arrived
            error = RequestTimeoutError(f"the request's deadline passed {waited:.1f} s after it arrived")
            end_request(state, request, FinishReason.TIMEOUT, now, error)
        for client in state.clients.silent(now):
            silent = SlowClientError(f"the client was not heard for {now - client.heard:.0f} s")
            doors.end_all(state, client, now, silent)
        workers.plan_steps(state, now)
        for number, deltas in state.deltas.take():
            owed = state.clients.number(number)
            if owed is not None:
                state.stats.direct_tokens += len(deltas.tokens) // TOKEN_BYTES if owed.direct else 0
                state.send(owed.identity, deltas)
        self._broadcast()
        supervision.tell_progress(state, now)

    def _broadcast(self) -> None:
        """Tell every client when readiness changed; progress of a start is told to those who ask."""
        ready, _ = self.state.readiness()
        if ready == self.state.told_ready:
            return
        self.state.told_ready = ready
        supervision.readiness_changed(self.state)
        status = doors.status(self.state)
        self.state.out += [SendClient(client.identity, status) for client in self.state.clients.all()]

    @property
    def busy(self) -> bool:
        """Whether a worker owes a result."""
        return any(worker.flight for worker in self.state.workers)

    def check_idle(self) -> None:
        """Raises InvariantError when no request is open and something is held all the same."""
        validate_idle(self.state)

    def next_turn(self) -> float:
        """When a turn is due even if nothing happens; infinity when none is."""
        drains = any(worker.ready and worker.memory.drains for worker in self.state.workers)
        if drains or self.state.searching:
            return 0.0
        return min(self.state.next_deadline(), self.state.clients.next_silence(), self.state.gather_until)

    def engine_stats(self) -> EngineStats:
        """Gauges and counters at this moment."""
        return doors.engine_stats(self.state)

    @property
    def stats(self) -> Stats:
        """Counters since start."""
        return self.state.stats
