"""Beam search against all sequences there are, on a model of four tokens."""

import itertools
import math
import random

import pytest

from octavo.frontend.engine.beam_search import BeamSearch, BeamSearchParams, search
from octavo.frontend.engine.outputs import CompletionOutput, Logprob, RequestOutput
from octavo.protocol.errors import InvalidRequestError
from octavo.protocol.sampling import SamplingParams

EOS = 3
PROMPT = [0, 1]


def logprobs(tokens: tuple[int, ...]) -> list[float]:
    """The model: what comes next depends on all that was."""
    weights = [random.Random(str((*tokens, token))).random() for token in range(4)]
    return [math.log(weight / sum(weights)) for weight in weights]


def generate(prompts: list[list[int]], params: SamplingParams) -> list[RequestOutput]:
    assert params.logprobs is not None and params.max_tokens == 1
    outputs = []
    for prompt in prompts:
        best = sorted(enumerate(logprobs(tuple(prompt))), key=lambda pair: -pair[1])[: params.logprobs]
        found = {token: Logprob(value) for token, value in best}
        outputs.append(RequestOutput("", None, prompt, [CompletionOutput(0, "", [], logprobs=[found])], True))
    return outputs


def every_sequence(max_tokens: int, penalty: float) -> list[tuple[float, tuple[int, ...]]]:
    found = []
    for length in range(1, max_tokens + 1):
        for answer in itertools.product(range(4), repeat=length):
            ended = answer[-1] == EOS
            if EOS in answer[:-1] or (length < max_tokens and not ended):
                continue
            parts = [logprobs((*PROMPT, *answer[:at]))[token] for at, token in enumerate(answer)]
            found.append((sum(parts) / (len(PROMPT) + length - ended) ** penalty, answer))
    return sorted(found, reverse=True)


def run(**fields: object) -> list[tuple[int, ...]]:
    params = BeamSearchParams(**fields)  # type: ignore[arg-type]
    one = BeamSearch(PROMPT, params, [EOS])
    search([one], params, generate)
    return [tuple(sequence.tokens[len(PROMPT) :]) for sequence in one.result()]


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0, -1.0])
@pytest.mark.parametrize("max_tokens", [1, 2])
def test_a_beam_as_wide_as_the_tree_finds_the_best(penalty: float, max_tokens: int) -> None:
    best = every_sequence(max_tokens, penalty)[:4]
    assert run(beam_width=4, max_tokens=max_tokens, length_penalty=penalty) == [answer for _, answer in best]


def test_one_beam_is_greedy() -> None:
    tokens: list[int] = []
    while len(tokens) < 6:
        scores = logprobs((*PROMPT, *tokens))
        tokens.append(max(range(4), key=scores.__getitem__))
    (found,) = run(beam_width=1, max_tokens=6, ignore_eos=True)
    assert list(found) == tokens


def test_a_search_that_cannot_improve_ends_early() -> None:
    params = BeamSearchParams(beam_width=2, max_tokens=10**6, length_penalty=0.0)
    one = BeamSearch(PROMPT, params, [EOS])
    search([one], params, generate)
    assert [sequence.finish_reason for sequence in one.result()] == ["stop"] * 2
    assert all(one.answer_of(sequence)[-1:] != [EOS] for sequence in one.result())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("beam_width", 0),
        ("beam_width", 11),
        ("beam_width", True),
        ("max_tokens", 0),
        ("temperature", 0.5),
        ("length_penalty", math.nan),
        ("length_penalty", "1"),
        ("ignore_eos", 1),
    ],
)
def test_a_wrong_value_is_named(field: str, value: object) -> None:
    with pytest.raises(InvalidRequestError, match=f"^{field} must be") as caught:
        BeamSearchParams(**{"beam_width": 2, "max_tokens": 2, field: value})  # type: ignore[arg-type]
    assert caught.value.param == field
