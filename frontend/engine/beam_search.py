"""Beam search on top of an engine: each step asks for the likeliest next tokens of every beam.

Source: Graves 2012, "Sequence Transduction with Recurrent Neural Networks"; the length penalty after Wu et
al. 2016, "Google's Neural Machine Translation System". Names and the score are vLLM's.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from ...protocol.errors import InvalidRequestError
from ...protocol.sampling import MAX_LOGPROBS, SamplingParams
from .outputs import Logprob, RequestOutput

_MAX_BEAMS = MAX_LOGPROBS // 2  # a beam asks for two tokens for each beam, so that ends leave enough to go on


class BeamSearchParams(msgspec.Struct, kw_only=True):
    """How to search. Raises InvalidRequestError (a ValueError) that names the field and what is allowed."""

    beam_width: int  # sequences kept after each token, and returned
    max_tokens: int  # most tokens of a sequence
    ignore_eos: bool = False  # the model's end tokens do not end a sequence
    temperature: float = 0.0  # beams are compared by the model's own probabilities: nothing else is allowed
    length_penalty: float = 1.0  # a score is the summed log-probability over length ** length_penalty
    include_stop_str_in_output: bool = False  # the text holds the end token

    def __post_init__(self) -> None:
        for name, most in (("beam_width", _MAX_BEAMS), ("max_tokens", 2**31 - 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise _wrong(name, value, f"an integer in [1, {most}]")
        if self.temperature != 0:
            raise _wrong("temperature", self.temperature, "0")
        penalty = self.length_penalty
        if isinstance(penalty, bool) or not isinstance(penalty, int | float) or not math.isfinite(penalty):
            raise _wrong("length_penalty", penalty, "a finite number")
        for name in ("ignore_eos", "include_stop_str_in_output"):
            if not isinstance(getattr(self, name), bool):
                raise _wrong(name, getattr(self, name), "true or false")


@dataclass(slots=True)
class BeamSearchSequence:
    """One sequence that the search found."""

    tokens: list[int]  # those of the prompt, then those of the answer, the end token included
    logprobs: list[dict[int, Logprob]] = field(default_factory=list)  # one entry a token of the answer
    cum_logprob: float = 0.0
    text: str | None = None  # of the answer
    finish_reason: str | None = None  # "stop" or "length"
    stop_reason: int | str | None = None  # the end token


@dataclass(slots=True)
class BeamSearchOutput:
    """The best sequences of a prompt, best first."""

    sequences: list[BeamSearchSequence]


class BeamSearch:
    """The search of one prompt."""

    def __init__(self, prompt: Sequence[int], params: BeamSearchParams, eos_token_ids: Sequence[int]) -> None:
        self.live = [BeamSearchSequence(list(prompt))]
        self._ended: list[BeamSearchSequence] = []
        self._params = params
        self._eos = frozenset() if params.ignore_eos else frozenset(eos_token_ids)
        self._prompt_len = len(prompt)

    @property
    def is_over(self) -> bool:
        """Whether no live beam can still become one of the best."""
        if not self.live:
            return True
        if len(self._ended) < self._params.beam_width or self._params.length_penalty < 0:
            return False
        # A beam's sum only falls, so at its longest it scores best.
        longest = self._prompt_len + self._params.max_tokens
        worst = heapq.nlargest(self._params.beam_width, map(self._score, self._ended))[-1]
        best = max(beam.cum_logprob for beam in self.live) / _weight(longest, self._params)
        return worst >= best

    def advance(self, found: Sequence[list[dict[int, Logprob]]]) -> None:
        """Take the likeliest next tokens of each live beam, and go on with the best."""
        grown = []
        for beam, tokens in zip(self.live, found, strict=True):
            for token, logprob in tokens[0].items():
                extended = BeamSearchSequence(
                    [*beam.tokens, token], [*beam.logprobs, tokens[0]], beam.cum_logprob + logprob.logprob
                )
                if token in self._eos:
                    extended.finish_reason, extended.stop_reason = "stop", token
                    self._ended.append(extended)
                else:
                    grown.append(extended)
        self.live = heapq.nlargest(self._params.beam_width, grown, key=self._score)

    def result(self) -> list[BeamSearchSequence]:
        """The best sequences, best first."""
        for beam in self.live:
            beam.finish_reason = "length"
        return heapq.nlargest(self._params.beam_width, [*self._ended, *self.live], key=self._score)

    def answer_of(self, sequence: BeamSearchSequence) -> list[int]:
        """The tokens that the text is made of."""
        ended = sequence.finish_reason == "stop" and not self._params.include_stop_str_in_output
        return sequence.tokens[self._prompt_len : len(sequence.tokens) - ended]

    def _score(self, beam: BeamSearchSequence) -> float:
        length = len(beam.tokens) - (beam.tokens[-1] in self._eos)
        return beam.cum_logprob / _weight(max(length, 1), self._params)


def search(
    searches: Sequence[BeamSearch],
    params: BeamSearchParams,
    generate: Callable[[list[list[int]], SamplingParams], Sequence[RequestOutput]],
) -> None:
    """Run the searches together, a token at a time; `generate` answers prompts of token ids in order.

    Raises RuntimeError when a step of a beam fails.
    """
    step = SamplingParams(
        temperature=0, max_tokens=1, logprobs=2 * params.beam_width, ignore_eos=True, detokenize=False
    )
    for _ in range(params.max_tokens):
        going = [one for one in searches if not one.is_over]
        if not going:
            return
        outputs = iter(generate([beam.tokens for one in going for beam in one.live], step))
        for one in going:
            one.advance([_logprobs_of(next(outputs)) for _ in one.live])


def _weight(length: int, params: BeamSearchParams) -> float:
    return math.pow(length, params.length_penalty)


def _logprobs_of(output: RequestOutput) -> list[dict[int, Logprob]]:
    found = output.outputs[0].logprobs
    if not found:
        raise RuntimeError(f"a beam could not be continued: {output.error}")
    return found


def _wrong(name: str, value: object, allowed: str) -> InvalidRequestError:
    return InvalidRequestError(f"{name} must be {allowed}, got {value!r}", param=name)
