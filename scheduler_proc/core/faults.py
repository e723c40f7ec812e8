"""A worker failed by itself: which request did it? Only one that does so while it runs alone is refused."""

import logging

from ...protocol.errors import RequestFailedError
from ...protocol.ids import FinishReason
from ..batching.worker import Worker
from .ends import end_request, preempt
from .request import Choice, Request, State
from .state import SchedulerState


def accuse(state: SchedulerState, worker: Worker, cause: str, now: float) -> None:
    """What was in flight when the worker failed is tried in halves, or refused when it was one request."""
    flown, worker.flown = worker.flown, []
    trials = worker.trials
    choices = [choice for choice in flown if choice.state is not State.ENDED and trials.allows(choice)]
    requests: list[Request] = sorted({c.request for c in choices}, key=lambda request: request.serial)
    if not requests:
        return
    for request in requests:
        request.faults += 1
    state.stats.narrowed += len(requests) < trials.num_accused
    trials.num_accused = len(requests)
    if trials:
        end_trial(state, worker, now)
    first = requests[0]
    if len(requests) == 1 and first.faults > 1:
        error = RequestFailedError(
            f"{first.name}: the worker failed each time that it computed this request: {cause}"
        )
        state.log(logging.ERROR, error.message)
        end_request(state, first, FinishReason.ERROR, now, error)
        return
    state.warn(f"worker {worker.index} failed with {len(requests)} requests in flight: each half runs alone")
    for request in requests:
        request.story.note(now, "suspected", f"one of {len(requests)} in flight when the worker failed")
    trials.begin(requests, choices)


def settle(state: SchedulerState, worker: Worker, now: float) -> bool:
    """End trials that went well; False while the next one waits for steps in flight, to run alone."""
    trials = worker.trials
    while trials and trials.present.passed(worker.rows):
        if trials.more:
            if worker.flight:
                return False
            for row in worker.rows.taken().tolist():
                preempt(state, worker, row, now, "other requests are tried alone")
        for request in trials.present.requests:
            request.faults = 0
        end_trial(state, worker, now)
    return True


def end_trial(state: SchedulerState, worker: Worker, now: float) -> None:
    """The present trial is over, whatever it showed."""
    for choice in worker.trials.end():
        state.waiting.unpark(choice)
    if not worker.trials:
        state.log(logging.INFO, f"worker {worker.index} has no more requests to try")


def next_choice(state: SchedulerState, worker: Worker, now: float) -> Choice | None:
    """The head of the queue, of those that may run on this worker now."""
    while (choice := state.waiting.head(now)) is not None and not worker.trials.allows(choice):
        state.waiting.park(choice)
        worker.trials.hold(choice)
        choice.request.story.note(now, "waits", f"for others that worker {worker.index} may have failed of")
    return choice
