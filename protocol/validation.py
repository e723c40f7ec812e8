"""The check that a request passes at every door: HTTP, the Python API, and the scheduler itself."""

from collections.abc import Iterable

from .errors import ContextLengthError, InvalidRequestError
from .lifecycle import ModelLimits
from .sampling import SamplingParams


def check_prompt(limits: ModelLimits, prompt_len: int, lowest: int, highest: int) -> None:
    """Check a prompt of `prompt_len` token ids that lie in [lowest, highest].

    Raises InvalidRequestError when it is empty, holds an id the model does not have, or leaves no room for
    an output token.
    """
    if prompt_len < 1:
        raise InvalidRequestError("prompt must hold at least one token", param="prompt")
    if lowest < 0 or highest >= limits.vocab_size:
        wrong = lowest if lowest < 0 else highest
        raise InvalidRequestError(
            f"prompt token ids must be in [0, {limits.vocab_size - 1}], got {wrong}", param="prompt"
        )
    if prompt_len >= limits.max_model_len:
        raise ContextLengthError(
            f"this model's maximum context length is {limits.max_model_len} tokens, and the prompt has "
            f"{prompt_len}: it must leave room for at least one output token",
            param="prompt",
        )
    if prompt_len >= limits.max_request_tokens:
        raise ContextLengthError(
            f"the prompt has {prompt_len} tokens, and the KV cache holds at most {limits.max_request_tokens} "
            "tokens of one request including its output",
            param="prompt",
        )


def check_priority(priority: int) -> None:
    """Check that a priority fits into a message. Raises InvalidRequestError."""
    if not -(2**63) <= priority < 2**63:
        raise InvalidRequestError(
            f"priority must be in [-2**63, 2**63 - 1], got one of {priority.bit_length()} bits",
            param="priority",
        )


def check_params(limits: ModelLimits, params: SamplingParams, prompt_len: int) -> None:
    """Check sampling parameters against the model and the prompt's length.

    Raises InvalidRequestError that names the field and the numbers.
    """
    params.validate()
    _check_ids("stop_token_ids", params.stop_token_ids or (), limits.vocab_size)
    _check_ids("allowed_token_ids", params.allowed_token_ids or (), limits.vocab_size)
    _check_ids("logit_bias", params.logit_bias or (), limits.vocab_size)
    room = min(limits.max_model_len, limits.max_request_tokens) - prompt_len
    if params.max_tokens is not None and params.max_tokens > room:
        bound = (
            f"this model's maximum context length is {limits.max_model_len} tokens"
            if limits.max_model_len <= limits.max_request_tokens
            else f"the KV cache holds at most {limits.max_request_tokens} tokens of one request"
        )
        raise ContextLengthError(
            f"max_tokens must be at most {room}: {bound} and the prompt has {prompt_len}, "
            f"got {params.max_tokens}",
            param="max_tokens",
        )


def output_room(limits: ModelLimits, params: SamplingParams, prompt_len: int) -> int:
    """Most output tokens a choice may have: max_tokens, or what the context leaves."""
    room = min(limits.max_model_len, limits.max_request_tokens) - prompt_len
    return room if params.max_tokens is None else min(params.max_tokens, room)


def _check_ids(name: str, ids: Iterable[int], vocab_size: int) -> None:
    for token in ids:
        if not 0 <= token < vocab_size:
            raise InvalidRequestError(
                f"{name} must hold token ids in [0, {vocab_size - 1}], got {token}", param=name
            )
