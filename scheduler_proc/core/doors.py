"""What clients may ask: each message changes the state and is answered."""

import logging

from ...protocol.codec import FINGERPRINT
from ...protocol.errors import InvalidRequestError, OctavoError, ProtocolError, QueueFullError
from ...protocol.ids import FinishReason
from ...protocol.replies import Accepted, EngineStats, Rejected, Snapshot, Status, Story, Welcome
from ...protocol.requests import Abort, Alive, ClientHello, ClientMessage, Finish, Query, Submit
from ..clients.intake import check_submit, make_request
from ..clients.registry import Client
from .ends import close_request, end_choice, end_request
from .request import Request, State
from .state import SchedulerState

_MAX_NAME = 64  # characters of a client's name that are kept
_RETRY_AFTER = 1.0  # seconds, when no forecast is known


def on_message(state: SchedulerState, identity: bytes, message: ClientMessage, now: float) -> None:
    """Act on a client's message."""
    client = state.clients.heard(identity, now)
    match message:
        case Submit():
            _submit(state, client, message, now)
        case Abort():
            request = client.requests.get(message.request)
            if request is not None:
                end_request(state, request, FinishReason.ABORT, now)
        case Finish():
            _finish(state, client, message, now)
        case Alive():
            state.send(identity, status(state))
        case ClientHello():
            _hello(state, client, message)
        case Query():
            answer = Story(message.token, message.name, state.stories.find(message.name))
            state.send(identity, answer if message.name else Snapshot(message.token, engine_stats(state)))


def status(state: SchedulerState) -> Status:
    ready, reason = state.readiness()
    return Status(state.identity.incarnation, ready, reason)


def _hello(state: SchedulerState, client: Client, hello: ClientHello) -> None:
    client.name = hello.name[:_MAX_NAME]
    client.refused = ""
    # A foreign client may send an empty fingerprint: it answers for its own reading of the format.
    if hello.fingerprint not in ("", FINGERPRINT):
        client.refused = (
            f"client {client.name!r} has schema {hello.fingerprint[:32]!r}, this scheduler {FINGERPRINT!r}: "
            "both must be of the same version of Octavo"
        )
        state.log(logging.ERROR, client.refused)
        state.send(client.identity, Status(state.identity.incarnation, False, client.refused, fatal=True))
        return
    ready, reason = state.readiness()
    state.send(client.identity, Welcome(state.identity.incarnation, state.limits(), ready, reason))


def _submit(state: SchedulerState, client: Client, submit: Submit, now: float) -> None:
    known = client.requests.get(submit.request)
    if known is not None and submit.attempt < known.attempt:
        return
    if known is not None and submit.attempt == known.attempt:
        _accept(state, known)
        return
    if known is not None:
        end_request(state, known, FinishReason.ABORT, now)
    try:
        if client.refused:
            raise ProtocolError(client.refused)
        limits = state.limits()
        check_submit(limits, submit)
        if not submit.attempt:  # one that is taken up again was let in before
            _check_queue(state, submit)
    except OctavoError as error:
        state.stats.reject(error.kind)
        state.send(
            client.identity,
            Rejected(
                submit.request,
                submit.attempt,
                error.kind,
                error.message,
                error.param or "",
                error.retry_after or 0.0,
            ),
        )
        return
    state.serials += 1
    request = make_request(
        submit,
        client,
        limits,
        serial=state.serials,
        now=now,
        timeout=state.config.request_timeout,
        key=state.identity.digest_key,
    )
    state.order.arrive(request, state.reading_seconds(request.prompt_len))
    client.requests[request.number] = request
    state.stories.begin(request.name, request.story)
    detail = f"{request.prompt_len} prompt tokens, {state.waiting.num_choices} choices ahead"
    request.story.note(now, "queued", detail)
    state.watch_deadline(request)
    _accept(state, request)
    if request.forks:
        state.waiting.push(request.forks[0], now)
        _end_complete(state, request, now)
    else:
        close_request(state, request)


def _accept(state: SchedulerState, request: Request) -> None:
    position = state.waiting.num_new
    wait = state.wait_forecast()
    forecast_ms = wait * 1e3 if wait >= 0 else -1.0
    state.send(request.client, Accepted(request.number, request.attempt, position, forecast_ms))


def _end_complete(state: SchedulerState, request: Request, now: float) -> None:
    """End the choices that have all the tokens they may have."""
    for choice in request.choices:
        if choice.state is not State.ENDED and choice.num_output >= request.max_output:
            end_choice(state, choice, FinishReason.LENGTH, now)
            state.deltas.add_end(choice, FinishReason.LENGTH)


def _check_queue(state: SchedulerState, submit: Submit) -> None:
    config, waiting = state.config, state.waiting
    # What the next step will take does not wait.
    rows = 0 if waiting.blocked else sum(worker.rows.num_free for worker in state.workers)
    if config.max_queued_requests and waiting.num_new >= config.max_queued_requests + rows:
        reason = f"{waiting.num_new} requests wait, and the bound is {config.max_queued_requests}"
    elif (
        config.max_queued_tokens
        and waiting.num_new
        and waiting.num_new_tokens + len(submit.prompt) // 4 > config.max_queued_tokens
    ):
        reason = f"{waiting.num_new_tokens} prompt tokens wait, and the bound is {config.max_queued_tokens}"
    else:
        return
    wait = state.wait_forecast()
    raise QueueFullError(f"the queue is full: {reason}", retry_after=wait if wait > 0 else _RETRY_AFTER)


def _finish(state: SchedulerState, client: Client, message: Finish, now: float) -> None:
    request = client.requests.get(message.request)
    if request is None or not 0 <= message.choice < len(request.choices):
        return
    choice = request.choices[message.choice]
    if choice.state is State.ENDED:
        return
    if choice.state is State.RUNNING:
        state.workers[choice.worker].rows.flush(choice.row)
    surplus = max(0, choice.num_output - max(0, message.num_output))
    state.stats.generated_tokens -= surplus
    state.stats.discarded_tokens += surplus
    end_choice(state, choice, FinishReason.STOP, now)


def drop_client(state: SchedulerState, client: Client, now: float, why: str) -> None:
    """End what the client has open and forget it. Nobody is told: there is nobody to tell."""
    if client.requests:
        name = client.name or client.identity.hex()
        state.warn(f"client {name!r}: {why}; ended {len(client.requests)} requests")
    for request in list(client.requests.values()):
        end_request(state, request, FinishReason.ABORT, now)
    state.deltas.forget(client.number)
    state.clients.forget(client)


def end_all(state: SchedulerState, client: Client, now: float, error: OctavoError) -> None:
    """End all requests of a client with an error."""
    for request in list(client.requests.values()):
        end_request(state, request, FinishReason.ERROR, now, error)


def recheck(state: SchedulerState, now: float) -> None:
    """A worker is ready and the memory's size known: requests that can never fit end now."""
    limits = state.limits()
    for client in state.clients.all():
        for request in list(client.requests.values()):
            longest = min(limits.max_request_tokens, limits.max_model_len)
            if request.prompt_len + request.max_output <= longest:
                continue
            if request.params.max_tokens is None and request.prompt_len < longest:
                state.waiting.bound_output(request, longest - request.prompt_len)
                _end_complete(state, request, now)
                continue
            error = InvalidRequestError(
                f"the KV cache holds at most {longest} tokens of one request, and this one may need "
                f"{request.prompt_len + request.max_output}"
            )
            end_request(state, request, FinishReason.ERROR, now, error)


def engine_stats(state: SchedulerState) -> EngineStats:
    """Gauges and counters at this moment."""
    pools = [group.pool for worker in state.workers if worker.kv for group in worker.kv.groups]
    stats = state.stats
    return EngineStats(
        running=sum(worker.rows.num_taken for worker in state.workers),
        waiting=state.waiting.num_choices,
        blocks_total=sum(pool.num_blocks for pool in pools),
        blocks_live=sum(pool.num_live for pool in pools),
        blocks_cached=sum(pool.num_cached for pool in pools),
        preemptions=stats.preemptions,
        prefix_queries=stats.prefix_queries,
        prefix_hits=stats.prefix_hits,
        prompt_tokens=stats.prompt_tokens,
        generated_tokens=stats.generated_tokens,
        discarded_tokens=stats.discarded_tokens,
        steps=stats.steps,
    )
