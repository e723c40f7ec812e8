"""What a request gives back. The names are vLLM's."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Logprob:
    """Log-probability of a token at one position."""

    logprob: float  # natural logarithm
    rank: int | None = None  # 1 for the most likely token
    decoded_token: str | None = None


@dataclass(slots=True)
class CompletionOutput:
    """One of the n answers to a prompt."""

    index: int  # 0 .. n-1
    text: str
    token_ids: Sequence[int]
    cumulative_logprob: float | None = None  # sum over token_ids; None without logprobs
    logprobs: list[dict[int, Logprob]] | None = None  # one entry a token: the chosen and the likeliest tokens
    finish_reason: str | None = None  # "stop", "length", "abort", "timeout", "error"; None while it runs
    stop_reason: int | str | None = None  # the stop token or stop string; None for eos

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestMetrics:
    """When things happened to a request, in seconds; times are of `time.monotonic`.

    All outputs of a request share it; it is filled as the request goes on.
    """

    arrival_time: float
    first_token_time: float | None = None
    finished_time: float | None = None
    time_in_queue: float | None = None  # from the scheduler's receipt to the first step
    prefill_time: float | None = None  # from then to the first token


@dataclass(slots=True)
class RequestOutput:
    """A request and what has come of it."""

    request_id: str
    prompt: str | None  # None when token ids were given
    prompt_token_ids: list[int]  # the same list in every output of a request
    outputs: list[CompletionOutput]
    finished: bool
    metrics: RequestMetrics | None = None
    num_cached_tokens: int | None = None  # prompt tokens found in the prefix cache
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    error: str | None = None  # why choices ended with "error" or "timeout", for people
