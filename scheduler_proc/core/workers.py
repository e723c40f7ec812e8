"""What workers say: their lives begin and end, they become ready, they return results."""

import logging

from msgspec.structs import replace

from ...protocol.codec import FINGERPRINT
from ...protocol.errors import ProtocolError, RankLostError
from ...protocol.lifecycle import Stop, WorkerFailed, WorkerHello, WorkerProgress, WorkerReady
from ...protocol.steps import StepResult, WorkerMessage
from ..batching.planner import Planner
from ..batching.results import ResultReader
from ..batching.worker import Rank, Worker
from ..waiting.reasons import FOR_A_WORKER
from .commands import SendWorker
from .doors import recheck
from .ends import requeue
from .faults import accuse
from .state import SchedulerState


def on_message(state: SchedulerState, index: int, number: int, message: WorkerMessage, now: float) -> None:
    """Act on a message of rank `number` of worker `index`."""
    if not (0 <= index < len(state.workers) and 0 <= number < len(state.workers[index].ranks)):
        state.warn(f"dropped a message of rank {number} of worker {index}, which does not exist")
        return
    worker = state.workers[index]
    rank = worker.ranks[number]
    if isinstance(message, WorkerHello):
        _hello(state, worker, rank, message, now)
        return
    if message.incarnation != rank.incarnation:
        return
    match message:
        case StepResult():
            if number == 0 and worker.ready:
                _result(state, worker, message, now)
        case WorkerProgress():
            if not worker.ready:
                worker.condition = f"worker {index}: {message.phase} {message.fraction:.0%}"
        case WorkerReady():
            _ready(state, worker, rank, message, now)
        case WorkerFailed():
            rank.incarnation, rank.ready = -1, False
            reason = f"worker {index} failed: {message.kind}: {message.message}"
            state.log(logging.ERROR, reason)
            requeue(state, worker, reason, now)
            if message.kind != RankLostError.__name__:  # another rank's end, which tells its own cause
                accuse(state, worker, f"{message.kind}: {message.message}", now)


def _hello(state: SchedulerState, worker: Worker, rank: Rank, hello: WorkerHello, now: float) -> None:
    if hello.fingerprint != FINGERPRINT:
        reason = f"worker {worker.index} speaks schema {hello.fingerprint!r}, this scheduler {FINGERPRINT!r}"
        state.log(logging.ERROR, reason)
        requeue(state, worker, reason, now)
        rank.incarnation, rank.ready = -1, False
        return
    # The same life greets again after its connection broke: what was under way between us may be lost.
    rank.incarnation, rank.ready, rank.pid = hello.incarnation, False, hello.pid
    requeue(state, worker, f"worker {worker.index} is starting", now)


def _ready(state: SchedulerState, worker: Worker, rank: Rank, ready: WorkerReady, now: float) -> None:
    rank.ready = True
    if worker.ready or not all(other.ready for other in worker.ranks):
        return
    config = state.config
    rows = min(ready.max_num_seqs, config.max_num_seqs)
    budget = min(ready.max_num_batched_tokens, config.max_num_batched_tokens)
    worker.open(ready.kv_groups, rows, budget, caching=config.enable_prefix_caching)
    took = ", ".join(f"{phase.name} {phase.seconds:.2f} s" for phase in ready.phases)
    sizes = ", ".join(f"{group.num_blocks} blocks of {group.block_size}" for group in ready.kv_groups)
    state.log(
        logging.INFO, f"worker {worker.index} is ready: {rows} rows, {budget} tokens a step, {sizes}; {took}"
    )
    recheck(state, now)


def _result(state: SchedulerState, worker: Worker, result: StepResult, now: float) -> None:
    try:
        ResultReader(state, worker, now).apply(result)
    except ProtocolError as error:
        # Its rows and ours have parted. A fresh life of it starts from what clients already have.
        reason = f"worker {worker.index} is told to stop: {error}"
        state.log(logging.ERROR, reason)
        requeue(state, worker, reason, now)
        for number, rank in enumerate(worker.ranks):
            rank.incarnation, rank.ready = -1, False
            state.out.append(SendWorker(worker.index, number, Stop()))


def on_gone(state: SchedulerState, index: int, number: int, now: float) -> None:
    """A rank cannot be reached."""
    worker = state.workers[index]
    # The supervisor tells how that process ended after this: by its pid, which accuses what was in flight.
    worker.ranks[number] = Rank(pid=worker.ranks[number].pid)
    requeue(state, worker, f"worker {index} is gone", now)


def plan_steps(state: SchedulerState, now: float) -> None:
    """Send each worker the plans it may have in flight."""
    state.gather_until, state.searching = float("inf"), False
    if state.waiting.num_choices and not any(worker.ready for worker in state.workers):
        state.waiting.block(FOR_A_WORKER, now)
    for worker in state.workers:
        if worker.ready:
            worker.memory.drain()
        depth = state.config.pipeline_depth
        while len(worker.flight) < depth and (plan := Planner(state, worker, now).plan()) is not None:
            for number, rank in enumerate(worker.ranks):
                addressed = plan if number == 0 else replace(plan, worker=rank.incarnation)
                state.out.append(SendWorker(worker.index, number, addressed))
