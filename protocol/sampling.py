"""How tokens of one request are chosen. Fields, defaults and ranges are vLLM's unless said otherwise."""

import math
from enum import IntEnum
from typing import TypeVar

import msgspec

from .errors import InvalidRequestError
from .structured import StructuredOutputsParams

T = TypeVar("T")

MAX_LOGPROBS = 20
MAX_N = 128
MAX_STOP_STRINGS = 64
MAX_STRING_LENGTH = 1024  # characters of one stop string or bad word: watching for them takes memory


class RequestOutputKind(IntEnum):
    """What each output of a request holds."""

    CUMULATIVE = 0  # all text and tokens so far
    DELTA = 1  # what is new since the last output
    FINAL_ONLY = 2  # one output, at the end


# field: (lowest, highest, whether lowest itself is allowed)
_FLOAT_RANGES: dict[str, tuple[float, float, bool]] = {
    "temperature": (0.0, math.inf, True),
    "top_p": (0.0, 1.0, True),
    "min_p": (0.0, 1.0, True),
    "presence_penalty": (-2.0, 2.0, True),
    "frequency_penalty": (-2.0, 2.0, True),
    "repetition_penalty": (0.0, math.inf, False),
}
_INT_RANGES: dict[str, tuple[int, int]] = {
    "n": (1, MAX_N),
    "top_k": (-1, 2**31 - 1),
    "min_tokens": (0, 2**31 - 1),
    "max_tokens": (1, 2**31 - 1),
    "logprobs": (0, MAX_LOGPROBS),
    "prompt_logprobs": (0, MAX_LOGPROBS),
    "seed": (-(2**63), 2**64 - 1),
}
_OPTIONAL_INTS = frozenset({"max_tokens", "logprobs", "prompt_logprobs", "seed"})
_BOOLS = (
    "ignore_eos",
    "detokenize",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "include_stop_str_in_output",
    "temperature_last",
    "stream",
)


class SamplingParams(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Sampling parameters of one request, checked when made and again at every door.

    Raises InvalidRequestError (a ValueError) that names the field and the allowed values.
    """

    n: int = 1  # choices to generate for the prompt
    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0  # nucleus mass kept; 0 keeps the most likely token alone
    top_k: int = 0  # tokens kept; 0 or -1 keeps all
    min_p: float = 0.0  # least probability kept, relative to the most likely token's
    seed: int | None = None  # None: the frontend draws one
    max_tokens: int | None = 16  # None: up to max_model_len
    min_tokens: int = 0  # eos, stop tokens and stop strings do not end a choice before
    stop: list[str] | str | None = None  # strings that end a choice; a list after construction
    stop_token_ids: list[int] | None = None  # tokens that end a choice; a list after construction
    ignore_eos: bool = False  # the model's own end tokens do not end a choice
    presence_penalty: float = 0.0  # subtracted from logits of tokens in the output
    frequency_penalty: float = 0.0  # times the token's count in the output, subtracted
    repetition_penalty: float = 1.0  # divides (or multiplies negative) logits of tokens in prompt and output
    logit_bias: dict[int, float] | None = None  # added to the logits of these tokens, clamped to [-100, 100]
    allowed_token_ids: list[int] | None = None  # no other token may be chosen
    bad_words: list[str] | None = None  # words that must not be generated
    structured_outputs: StructuredOutputsParams | None = None  # a grammar that the output obeys
    logprobs: int | None = None  # how many most likely tokens to report beside the chosen one
    prompt_logprobs: int | None = None  # the same for each token of the prompt but the first
    detokenize: bool = True  # False: outputs hold token ids and an empty text
    skip_special_tokens: bool = True  # leave special tokens out of the text
    spaces_between_special_tokens: bool = True  # in the text, when they are not skipped
    include_stop_str_in_output: bool = False  # the text ends with the stop string, not before it
    temperature_last: bool = False  # apply the temperature behind min_p, top_k and top_p
    output_kind: RequestOutputKind | None = None  # None: DELTA with stream=True, else CUMULATIVE
    stream: bool = False  # outputs come as they are generated
    timeout: float | None = None  # seconds from arrival to the end; then RequestTimeoutError

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            self.stop = [self.stop]
        self.stop = _as_list(self.stop)
        self.stop_token_ids = _as_list(self.stop_token_ids)
        if self.output_kind is None:
            self.output_kind = RequestOutputKind.DELTA if self.stream else RequestOutputKind.CUMULATIVE
        self.validate()

    def validate(self) -> None:
        """Check every field and conflict; raises InvalidRequestError. Called again on submission."""
        for name, (low, high, closed) in _FLOAT_RANGES.items():
            _check_float(name, getattr(self, name), low, high, closed=closed)
        for name, (first, last) in _INT_RANGES.items():
            _check_int(name, getattr(self, name), first, last, optional=name in _OPTIONAL_INTS)
        for name in _BOOLS:
            if not isinstance(getattr(self, name), bool):
                raise _wrong(name, getattr(self, name), "true or false")
        if self.timeout is not None:
            _check_float("timeout", self.timeout, 0.0, math.inf, closed=False)
        _check_strings("stop", self.stop, MAX_STOP_STRINGS)
        _check_strings("bad_words", self.bad_words, 1024)
        _check_ids("stop_token_ids", self.stop_token_ids)
        _check_ids("allowed_token_ids", self.allowed_token_ids)
        _check_bias(self.logit_bias)
        if isinstance(self.structured_outputs, StructuredOutputsParams):
            self.structured_outputs.validate()
        elif self.structured_outputs is not None:
            raise _wrong("structured_outputs", self.structured_outputs, "a StructuredOutputsParams")
        self._check_conflicts()

    def _check_conflicts(self) -> None:
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequestError(
                f"min_tokens must be at most max_tokens ({self.max_tokens}), got {self.min_tokens}",
                param="min_tokens",
            )
        if self.stop and not self.detokenize:
            raise InvalidRequestError("stop strings need detokenize=True", param="stop")
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise InvalidRequestError("allowed_token_ids must not be empty", param="allowed_token_ids")
        if not isinstance(self.output_kind, RequestOutputKind):
            raise _wrong("output_kind", self.output_kind, "a RequestOutputKind")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    def clone(self) -> "SamplingParams":
        """A copy that shares nothing mutable with this one."""
        return msgspec.convert(msgspec.to_builtins(self), SamplingParams)


def _as_list(values: list[T] | None) -> list[T]:
    """A list of one's own; what is no sequence stays as it is, for the validation to refuse."""
    if values is None:
        return []
    return list(values) if isinstance(values, list | tuple) else values


def _wrong(name: str, value: object, allowed: str) -> InvalidRequestError:
    return InvalidRequestError(f"{name} must be {allowed}, got {value!r}", param=name)


def _check_float(name: str, value: object, low: float, high: float, *, closed: bool) -> None:
    bounds = f"{'[' if closed else '('}{low:g}, {high:g}{')' if high == math.inf else ']'}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(name, value, f"a number in {bounds}")
    if not math.isfinite(value) or value > high or value < low or (value == low and not closed):
        raise _wrong(name, value, f"a number in {bounds}")


def _check_int(name: str, value: object, first: int, last: int, *, optional: bool) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not first <= value <= last:
        raise _wrong(name, value, f"an integer in [{first}, {last}]")


def _check_strings(name: str, values: object, most: int) -> None:
    if values is None:
        return
    if not isinstance(values, list) or len(values) > most:
        raise _wrong(name, values, f"a list of at most {most} strings")
    for value in values:
        if not isinstance(value, str) or not value:
            raise _wrong(name, value, "made of non-empty strings")
        if len(value) > MAX_STRING_LENGTH:
            raise InvalidRequestError(
                f"{name} must be made of strings of at most {MAX_STRING_LENGTH} characters, got {len(value)}",
                param=name,
            )


def _check_ids(name: str, values: object) -> None:
    if values is None:
        return
    if not isinstance(values, list):
        raise _wrong(name, values, "a list of token ids")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
            raise _wrong(name, value, "made of token ids, integers from 0")


def _check_bias(bias: dict[int, float] | None) -> None:
    if bias is None:
        return
    if not isinstance(bias, dict):
        raise _wrong("logit_bias", bias, "a map of token id to bias")
    for token, value in bias.items():
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < 2**31:
            raise _wrong("logit_bias", token, "keyed by token ids, integers from 0")
        _check_float("logit_bias", value, -100.0, 100.0, closed=True)
