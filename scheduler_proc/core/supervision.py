"""What whoever started the processes tells and asks: how workers ended, and whether there is progress."""

from ...protocol.lifecycle import ProcessEnded, Progress, SupervisorMessage, Watch
from ..batching.worker import Rank, Worker
from .commands import SendSupervisor
from .ends import requeue
from .faults import accuse
from .state import SchedulerState

_STUCK_SECONDS = 10.0  # a step that takes less is never taken for stuck
_STUCK_FORECASTS = 20.0  # nor one that takes less than so many times its forecast


def on_message(state: SchedulerState, message: SupervisorMessage, now: float) -> None:
    """Act on a message of the supervisor."""
    match message:
        case Watch():
            state.supervised, state.owed = True, message.token
        case ProcessEnded():
            _ended(state, message, now)


def readiness_changed(state: SchedulerState) -> None:
    """The supervisor is told, asked or not."""
    if state.supervised and state.owed is None:
        state.owed = 0


def tell_progress(state: SchedulerState, now: float) -> None:
    """Answer the question for progress; when everything that has arrived was handled, not before."""
    token, state.owed = state.owed, None
    if token is None:
        return
    stuck = [rank.pid for worker in state.workers if is_stuck(worker, now) for rank in worker.ranks]
    ready, _ = state.readiness()
    count = state.stats.steps + state.stats.narrowed
    answer = Progress(token, state.identity.incarnation, count, ready, tuple(stuck))
    state.out.append(SendSupervisor(answer))


def is_stuck(worker: Worker, now: float) -> bool:
    """Whether the oldest step in flight has taken longer than a step that only is slow."""
    if not worker.flight:
        return False
    step = worker.flight[0]
    bound = max(_STUCK_SECONDS, _STUCK_FORECASTS * worker.pace.forecast(step.num_tokens))
    return now - max(step.sent, worker.last_result) > bound


def _ended(state: SchedulerState, ended: ProcessEnded, now: float) -> None:
    if not (0 <= ended.group < len(state.workers)):
        return
    worker = state.workers[ended.group]
    if not (0 <= ended.rank < len(worker.ranks)) or worker.ranks[ended.rank].pid != ended.pid:
        return
    worker.ranks[ended.rank] = Rank()
    requeue(state, worker, f"worker {worker.index} is restarting: {ended.cause}", now)
    if ended.fault:
        accuse(state, worker, ended.cause, now)
    worker.flown.clear()
