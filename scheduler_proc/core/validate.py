"""The invariants of the state. A failure carries the story of the request in which it shows."""

from collections import Counter

import numpy as np

from ..batching.worker import Worker
from ..memory.kv_group import HOLE, GroupBlocks
from .request import Choice, Request, State
from .state import SchedulerState


class InvariantError(AssertionError):
    """The scheduler contradicts itself."""


def _require(holds: object, what: str, choice: Choice | None = None) -> None:
    if not holds:
        told = f"; {choice}: {choice.request.story}" if choice else ""
        raise InvariantError(what + told)


def validate(state: SchedulerState) -> None:
    """Check everything that must hold between events. Raises InvariantError."""
    requests = [request for client in state.clients.all() for request in client.requests.values()]
    for request in requests:
        _validate_request(state, request)
    _validate_waiting(state, requests)
    for worker in state.workers:
        if worker.kv is None:
            _require(
                not worker.flight and not worker.rows.count, f"worker {worker.index} is not ready but works"
            )
            continue
        _validate_rows(worker)
        for index, group in enumerate(worker.kv.groups):
            holds = [
                request.hold.blocks[index]
                for request in requests
                if request.hold is not None and request.hold_worker == worker.index
            ]
            _validate_group(worker, group, holds)


def validate_idle(state: SchedulerState) -> None:
    """Check, in no time, that nothing is left behind when no request is open. Raises InvariantError."""
    if any(client.requests for client in state.clients.all()):
        return
    _require(not state.waiting.num_choices and not state.waiting.num_new, "the queue is not empty at idle")
    for worker in state.workers:
        _require(not worker.rows.num_taken, f"worker {worker.index} has rows taken at idle")
        for group in worker.kv.groups if worker.kv else ():
            _require(
                len(group.leaving) >= group.pool.num_live, f"worker {worker.index} has live blocks at idle"
            )


def _validate_request(state: SchedulerState, request: Request) -> None:
    choices = request.choices
    alive = [choice for choice in choices if choice.state is not State.ENDED]
    _require(alive and request.open == len(alive), f"{request.open} choices counted open", choices[0])
    _require(
        request.hold is None or any(choice.state is State.WAITING for choice in choices),
        "blocks are kept for forks that are not to come",
        choices[0],
    )
    _require(
        any(choice.state is not State.FORK for choice in alive), "all choices wait for another", choices[0]
    )
    for choice in choices:
        running = choice.state is State.RUNNING
        _require(running == (choice.row >= 0) == (choice.worker >= 0), "row and state disagree", choice)
        if running:
            rows = state.workers[choice.worker].rows
            _require(rows.choices[choice.row] is choice, "the row is another's", choice)
            _require(rows.tenancy[choice.row] == choice.tenancy, "the row's tenancy differs", choice)


def _validate_waiting(state: SchedulerState, requests: list[Request]) -> None:
    waiting = state.waiting
    parked = [
        choice for worker in state.workers for choice in (*worker.followers.choices(), *worker.trials.held())
    ]
    queued = waiting.choices() + parked
    expected = [choice for request in requests for choice in request.choices if choice.state is State.WAITING]
    _require(
        len(queued) == len(expected) == waiting.num_choices, f"{len(queued)} queued, {len(expected)} wait"
    )
    fresh = [request for request in requests if request.is_new]
    _require(waiting.num_new == len(fresh), f"{waiting.num_new} new requests counted, {len(fresh)} wait")
    tokens = sum(request.prompt_len for request in fresh)
    _require(waiting.num_new_tokens == tokens, f"{waiting.num_new_tokens} tokens counted, {tokens} wait")


def _validate_rows(worker: Worker) -> None:
    rows = worker.rows
    taken = rows.taken()
    _require(len(taken) == rows.num_taken, "free rows and tenancies disagree")
    drawing: Counter[int] = Counter()
    flying: dict[int, int] = {}
    for step in worker.flight:
        mine = rows.tenancy[step.rows] == step.tenancy
        drawing.update(step.rows[step.sampled][mine[step.sampled]].tolist())
        flying.update(zip(step.rows[mine].tolist(), step.end[mine].tolist(), strict=True))
    for row in taken.tolist():
        choice = rows.at(row)
        written, computed = int(rows.num_written[row]), int(rows.num_computed[row])
        known, length = int(rows.num_known[row]), int(rows.length[row])
        lengths = f"written {written}, computed {computed}, known {known}, length {length}"
        _require(
            written <= computed <= length and known <= length, f"lengths out of order: {lengths}", choice
        )
        _require(length <= rows.max_length[row], f"an end was overrun: {lengths}", choice)
        _require(length - known == drawing[row], f"{drawing[row]} tokens in flight: {lengths}", choice)
        _require(flying.get(row, written) == computed, f"steps in flight end elsewhere: {lengths}", choice)
        output = choice.num_output + int(rows.tail_len[row])
        _require(known == choice.request.prompt_len + output, f"{output} tokens kept: {lengths}", choice)
        for group in worker.memory.groups:
            _require(
                int(group.held[row]) * group.block_size >= computed, f"too few blocks: {lengths}", choice
            )
    for choice in worker.late.values():
        _require(choice.pending > 0, "a late choice awaits nothing", choice)


def _validate_group(worker: Worker, group: GroupBlocks, holds: list[list[int]]) -> None:
    pool = group.pool
    refs: Counter[int] = Counter()
    for row, table in enumerate(group.tables):
        _require(len(table) == group.held[row], f"row {row} holds {len(table)} blocks, not {group.held[row]}")
        _require(bool(worker.rows.tenancy[row]) or not table, f"free row {row} holds blocks")
        first = int(group.first[row])
        _require(set(table[:first]) <= {HOLE} and HOLE not in table[first:], f"row {row} has holes inside")
        refs.update(block for block in table if block != HOLE)
    for blocks in (*holds, group.leaving):
        refs.update(block for block in blocks if block != HOLE)
    counted = np.array([refs[block] for block in range(pool.num_blocks)])
    _require((counted == pool.refs).all(), "reference counts differ from the tables")
    free = pool.free_blocks()
    _require(len(set(free)) == len(free) == pool.num_free, "a block is free twice")
    _require(all(not pool.refs[block] for block in free), "a free block is referenced")
    _require(len(free) + len(refs) == pool.num_blocks, "blocks were lost")
    named = sum(1 for block in free if group.cache.name(block) is not None)
    _require(named == pool.num_cached, "cached blocks and names disagree")
