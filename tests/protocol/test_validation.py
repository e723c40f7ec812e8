"""The check at every door: what is refused, and that the message names the field and the numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.protocol.errors import ContextLengthError, InvalidRequestError
from octavo.protocol.lifecycle import ModelLimits
from octavo.protocol.sampling import SamplingParams
from octavo.protocol.validation import check_params, check_priority, check_prompt, output_room

VOCAB, M = 1000, 64


def limits(*, max_model_len: int = M, max_request_tokens: int = 10_000) -> ModelLimits:
    return ModelLimits("m", VOCAB, max_model_len, max_request_tokens, (2,))


def test_a_prompt_may_leave_room_for_one_token() -> None:
    check_prompt(limits(), M - 1, 0, VOCAB - 1)


@pytest.mark.parametrize("length", [M, M + 1, M + 50])
def test_o10_a_prompt_that_fills_the_context_is_refused_with_both_numbers(length: int) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        check_prompt(limits(), length, 5, 5)
    assert str(M) in refused.value.message
    assert str(length) in refused.value.message


def test_o14_an_empty_prompt_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="at least one token"):
        check_prompt(limits(), 0, 0, 0)


@pytest.mark.parametrize(("lowest", "highest", "named"), [(-1, 5, -1), (5, VOCAB, VOCAB), (0, 2**40, 2**40)])
def test_o17_a_token_that_the_model_does_not_have_is_named(lowest: int, highest: int, named: int) -> None:
    with pytest.raises(InvalidRequestError, match=rf"\[0, {VOCAB - 1}\], got {named}"):
        check_prompt(limits(), 3, lowest, highest)


def test_o39_a_prompt_that_never_fits_the_pool_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="at most 32 tokens"):
        check_prompt(limits(max_request_tokens=32), 40, 5, 5)


def test_o12_max_tokens_beyond_the_room_is_refused_with_the_numbers() -> None:
    check_params(limits(), SamplingParams(max_tokens=10), M - 10)
    with pytest.raises(ContextLengthError) as refused:
        check_params(limits(), SamplingParams(max_tokens=11), M - 10)
    assert refused.value.param == "max_tokens"
    assert all(str(number) in refused.value.message for number in (M, M - 10, 11))


def test_o39_max_tokens_beyond_the_pool_names_the_pool() -> None:
    with pytest.raises(InvalidRequestError, match="KV cache holds at most 32"):
        check_params(limits(max_request_tokens=32), SamplingParams(max_tokens=30), 10)


BAD_IDS = {
    "stop_token_ids": SamplingParams(stop_token_ids=[5, VOCAB]),
    "allowed_token_ids": SamplingParams(allowed_token_ids=[VOCAB + 7]),
    "logit_bias": SamplingParams(logit_bias={VOCAB: 1.0}),
}


@pytest.mark.parametrize("field", BAD_IDS)
def test_o04_an_id_beyond_the_vocabulary_is_refused_by_its_field(field: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        check_params(limits(), BAD_IDS[field], 10)
    assert refused.value.param == field
    assert str(VOCAB - 1) in refused.value.message


def test_parameters_changed_after_they_were_made_are_checked_again() -> None:
    params = SamplingParams()
    params.temperature = -1.0
    with pytest.raises(InvalidRequestError, match="temperature"):
        check_params(limits(), params, 10)


@given(
    prompt_len=st.integers(1, 200),
    max_model_len=st.integers(2, 200),
    max_request_tokens=st.integers(2, 200),
    max_tokens=st.none() | st.integers(1, 200),
)
def test_what_is_accepted_always_fits(
    prompt_len: int, max_model_len: int, max_request_tokens: int, max_tokens: int | None
) -> None:
    bounds = limits(max_model_len=max_model_len, max_request_tokens=max_request_tokens)
    params = SamplingParams(max_tokens=max_tokens)
    try:
        check_prompt(bounds, prompt_len, 0, 0)
        check_params(bounds, params, prompt_len)
    except InvalidRequestError:
        room = min(max_model_len, max_request_tokens) - prompt_len
        assert room < (max_tokens or 1), "what fits is refused"
        return
    room = output_room(bounds, params, prompt_len)
    assert room >= 1
    assert prompt_len + room <= min(max_model_len, max_request_tokens)
    assert room == max_tokens or max_tokens is None


@pytest.mark.parametrize("priority", [2**63, -(2**63) - 1, 10**400])
def test_a_priority_that_no_message_can_carry_is_refused(priority: int) -> None:
    with pytest.raises(InvalidRequestError, match="priority must be in"):
        check_priority(priority)


def test_a_priority_at_either_end_is_taken() -> None:
    check_priority(2**63 - 1)
    check_priority(-(2**63))
