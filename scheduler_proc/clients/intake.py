"""The scheduler's own door: from a `Submit` to a request, checked by the same rules as every other door."""

import numpy as np

from ...protocol.errors import InvalidRequestError
from ...protocol.lifecycle import ModelLimits
from ...protocol.requests import Submit
from ...protocol.validation import check_params, check_prompt, output_room
from ..core.request import TOKEN_BYTES, Choice, Request, State
from ..core.story import StoryLog
from ..memory.prefix_cache import DigestChain, salt_digest
from .registry import Client

_MAX_NAME = 256
_SEED_MASK = 2**64 - 1


def check_submit(limits: ModelLimits, submit: Submit) -> None:
    """Raises InvalidRequestError that names the field at fault."""
    if not 0 <= submit.request < 2**63:
        raise InvalidRequestError(f"request must be in [0, 2**63), got {submit.request}", param="request")
    if not 0 <= submit.attempt < 2**31:
        raise InvalidRequestError(f"attempt must be in [0, 2**31), got {submit.attempt}", param="attempt")
    if len(submit.name) > _MAX_NAME:
        raise InvalidRequestError(f"the request id has more than {_MAX_NAME} characters", param="request_id")
    if not submit.age_ms >= 0:
        raise InvalidRequestError(f"age_ms must be at least 0, got {submit.age_ms}", param="age_ms")
    prompt = _tokens("prompt", submit.prompt)
    lowest, highest = (int(prompt.min()), int(prompt.max())) if len(prompt) else (0, 0)
    check_prompt(limits, len(prompt), lowest, highest)
    check_params(limits, submit.params, len(prompt))
    for word in submit.bad_words:
        _check_ids("bad_words", word, limits.vocab_size)
    _check_resumption(limits, submit)


def _check_resumption(limits: ModelLimits, submit: Submit) -> None:
    n = submit.params.n
    if len(submit.delivered) not in (0, n):
        raise InvalidRequestError(
            f"delivered must have one column for each of {n} choices", param="delivered"
        )
    room = output_room(limits, submit.params, len(submit.prompt) // TOKEN_BYTES)
    for column in submit.delivered:
        _check_ids("delivered", column, limits.vocab_size)
        if len(column) // TOKEN_BYTES > room:
            raise InvalidRequestError(f"more than {room} tokens were delivered", param="delivered")
    if any(not 0 <= index < n for index in submit.ended):
        raise InvalidRequestError(f"ended must hold choices in [0, {n - 1}]", param="ended")


def _tokens(name: str, column: bytes) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    if len(column) % TOKEN_BYTES:
        raise InvalidRequestError(f"{name} is not an int32 column: {len(column)} bytes", param=name)
    return np.frombuffer(column, np.int32)


def _check_ids(name: str, column: bytes, vocab_size: int) -> None:
    tokens = _tokens(name, column)
    if len(tokens) and not (int(tokens.min()) >= 0 and int(tokens.max()) < vocab_size):
        raise InvalidRequestError(f"{name} must hold token ids in [0, {vocab_size - 1}]", param=name)


def make_request(
    submit: Submit,
    client: Client,
    limits: ModelLimits,
    *,
    serial: int,
    now: float,
    timeout: float,
    key: bytes,
) -> Request:
    """The request of a checked `Submit`. `timeout` is the server's, in seconds, 0 for none."""
    params = submit.params
    bounds = [bound for bound in (params.timeout, timeout) if bound]
    eos = () if params.ignore_eos else limits.eos_token_ids
    request = Request(
        serial=serial,
        client=client.identity,
        client_number=client.number,
        number=submit.request,
        attempt=submit.attempt,
        name=submit.name,
        prompt=submit.prompt,
        params=params,
        seed=submit.seed & _SEED_MASK,
        priority=submit.priority,
        user=submit.user,
        bad_words=submit.bad_words,
        arrived=now,
        deadline=now + min(bounds) - submit.age_ms / 1e3 if bounds else float("inf"),
        max_output=output_room(limits, params, len(submit.prompt) // TOKEN_BYTES),
        stops=tuple(dict.fromkeys((*eos, *(params.stop_token_ids or ())))),
        story=StoryLog(now),
    )
    root = salt_digest(key, submit.cache_salt)
    for index in range(params.n):
        output = bytearray(submit.delivered[index]) if submit.delivered else bytearray()
        choice = Choice(request, index, output)
        if index in submit.ended:
            choice.state = State.ENDED
        else:
            choice.chain = DigestChain(key, root, choice.token_bytes)
        request.choices.append(choice)
    request.open = sum(choice.state is not State.ENDED for choice in request.choices)
    return request
