"""How a choice leaves: it ends, or it is preempted. Blocks are free and the queue is right afterwards."""

from ...protocol.errors import OctavoError
from ...protocol.ids import FinishReason
from ..batching.worker import Worker
from .request import Choice, Request, State
from .state import SchedulerState


def end_choice(state: SchedulerState, choice: Choice, finish: FinishReason, now: float) -> None:
    """End a choice in any state. The client is not told here."""
    request, waited = choice.request, ""
    if choice.state is State.RUNNING:
        state.workers[choice.worker].release(choice.row)
        state.lengths.add(choice.num_output, whole=finish is FinishReason.STOP)
    elif choice.state is State.WAITING:
        waited = state.waiting.told_wait(choice, now)
        state.waiting.leave(choice)
    elif choice.state is State.ENDED:
        return
    choice.state, choice.finish = State.ENDED, finish
    del choice.chain  # which holds the choice: requests are freed without a garbage collection
    request.open -= 1
    state.stats.end(finish.public or "")
    detail = f"choice {choice.index}: {finish.public}, {choice.num_output} tokens{waited}"
    request.story.note(now, "finished", detail)
    if request.open:
        settle_hold(state, request)
        _keep_forks_moving(state, request, now)
    else:
        close_request(state, request)


def _keep_forks_moving(state: SchedulerState, request: Request, now: float) -> None:
    """The choice that was to read the prompt for the others is gone: the next one reads it."""
    if all(choice.state in (State.FORK, State.ENDED) for choice in request.choices):
        state.waiting.push(request.forks[0], now)


def close_request(state: SchedulerState, request: Request) -> None:
    """All its choices have ended: forget the request, but for its story."""
    drop_hold(state, request)
    client = state.clients.number(request.client_number)
    if client is not None and client.requests.get(request.number) is request:
        del client.requests[request.number]
    state.stories.end(request.name, request.story)
    state.unwatch_deadline(request)
    state.order.leave(request)
    request.choices = []  # they hold the request


def end_request(
    state: SchedulerState,
    request: Request,
    finish: FinishReason,
    now: float,
    error: OctavoError | None = None,
) -> None:
    """End all open choices of a request; the client is told when there is an error to tell."""
    # Forks first: otherwise each end would send the next one to read the prompt.
    for choice in reversed(request.choices):
        if choice.state is State.ENDED:
            continue
        end_choice(state, choice, finish, now)
        if error is not None:
            state.deltas.add_end(choice, finish, error)


def release_forks(state: SchedulerState, choice: Choice, now: float) -> None:
    """`choice` has read the prompt: the others may start, behind its full blocks while it has them."""
    request = choice.request
    forks = request.forks
    if not forks:
        return
    shared = 0
    if choice.state is State.RUNNING:
        worker = state.workers[choice.worker]
        shared = shared_length(worker, request)
        request.hold, request.hold_worker = worker.memory.head(choice.row, shared), choice.worker
    for fork in forks:
        fork.chain = choice.chain.fork(request.prompt_len, fork.token_bytes)
        state.waiting.push(fork, now)
    request.story.note(now, "forked", f"{len(forks)} choices share {shared} tokens")


def shared_length(worker: Worker, request: Request) -> int:
    """Prompt tokens that forks need not compute: whole blocks, and never the last token."""
    stride = worker.memory.stride
    return (request.prompt_len - 1) // stride * stride


def drop_hold(state: SchedulerState, request: Request) -> None:
    """Give up the blocks kept for forks; those that come later read the prompt themselves."""
    if request.hold is not None:
        worker = state.workers[request.hold_worker]
        if worker.ready:
            worker.memory.give_back(request.hold)
        request.hold = None


def settle_hold(state: SchedulerState, request: Request) -> None:
    """Give up the blocks kept for forks once none of them waits."""
    if request.hold is not None and not any(choice.state is State.WAITING for choice in request.choices):
        drop_hold(state, request)


def preempt(state: SchedulerState, worker: Worker, row: int, now: float, why: str) -> None:
    """Take a row from its choice, which will be computed again later from all its tokens."""
    pending = int(worker.rows.length[row] - worker.rows.num_known[row])
    choice = worker.release(row)
    choice.pending = pending
    if pending:
        worker.late[choice.tenancy] = choice
    state.waiting.push(choice, now)
    state.stats.preemptions += 1
    choice.request.story.note(now, "preempted", f"choice {choice.index} at {choice.num_known} tokens: {why}")


def requeue(state: SchedulerState, worker: Worker, condition: str, now: float) -> None:
    """The worker lost its state: its choices go back to the queue with the tokens known so far."""
    if not worker.ready:
        worker.condition = condition
        return
    for request in holders_at(state, worker):
        drop_hold(state, request)
    lost = worker.close(condition)
    for choice in worker.followers.take_woken():
        state.waiting.unpark(choice)
    state.stats.worker_resets += bool(lost)
    for choice in lost:
        choice.request.story.note(now, "worker lost", condition)
        state.waiting.push(choice, now)


def holders_at(state: SchedulerState, worker: Worker) -> list[Request]:
    """Requests that keep blocks of this worker for forks to come."""
    return [
        request
        for client in state.clients.all()
        for request in client.requests.values()
        if request.hold is not None and request.hold_worker == worker.index
    ]
