"""Sampling parameters: every value out of range is refused by name, whatever it is."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.protocol.errors import InvalidRequestError
from octavo.protocol.sampling import MAX_STOP_STRINGS, RequestOutputKind, SamplingParams

NAN, INF = math.nan, math.inf

REFUSED: list[tuple[str, object]] = [
    *[("temperature", value) for value in (-0.1, NAN, INF, "1", True, None)],
    *[("top_p", value) for value in (-0.1, 1.1, NAN, "0.9", None)],
    *[("min_p", value) for value in (-0.1, 1.5)],
    *[("top_k", value) for value in (-2, 1.5, 2**31, "5", None)],
    *[("n", value) for value in (0, -1, 129, "2", 1.0, None, True)],
    *[("presence_penalty", value) for value in (-2.1, 2.1, NAN)],
    *[("frequency_penalty", value) for value in (-2.1, 2.1)],
    *[("repetition_penalty", value) for value in (0, -1.0, NAN)],
    *[("max_tokens", value) for value in (0, -1, 1.5, "16")],
    *[("min_tokens", value) for value in (-1, 17, None)],
    *[("logprobs", value) for value in (-1, 21, True)],
    *[("seed", value) for value in (-(2**63) - 1, 2**64, 1.5, "7")],
    *[("timeout", value) for value in (0, -1.0, NAN, "9")],
    *[("stop", value) for value in ("", [""], ["a", ""], [1], ["a"] * (MAX_STOP_STRINGS + 1), ["x" * 1025])],
    *[("stop_token_ids", value) for value in ([-1], [2**31], [1.5], [True], ["1"])],
    *[("allowed_token_ids", value) for value in ([], [-1])],
    *[("bad_words", value) for value in ([""], [1], "word")],
    *[("logit_bias", value) for value in ({-1: 1.0}, {5: 100.1}, {5: NAN}, {"5": 1.0}, [5])],
    *[("ignore_eos", value) for value in (1, "true", None)],
    ("output_kind", 7),
]


@pytest.mark.parametrize(("field", "value"), REFUSED, ids=lambda value: repr(value)[:24])
def test_a_value_out_of_range_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidRequestError, match=field) as refused:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert refused.value.param == field
    assert isinstance(refused.value, ValueError)


ACCEPTED: list[tuple[str, object]] = [
    *[("temperature", value) for value in (0, 1e-40, 2.5)],
    *[("top_p", value) for value in (0, 1)],
    *[("top_k", value) for value in (-1, 0, 9_999_999)],
    *[("seed", value) for value in (None, 0, -(2**63), 2**64 - 1)],
    *[("max_tokens", value) for value in (None, 16)],
    *[("logprobs", value) for value in (None, 0, 20)],
    ("n", 128),
    ("repetition_penalty", 1e-9),
    ("timeout", 0.001),
    ("logit_bias", {0: -100, 5: 100}),
]


@pytest.mark.parametrize(("field", "value"), ACCEPTED, ids=lambda value: repr(value)[:24])
def test_the_edges_of_the_ranges_are_accepted(field: str, value: object) -> None:
    assert getattr(SamplingParams(**{field: value}), field) == value  # type: ignore[arg-type]


@pytest.mark.parametrize("stop", [None, [], "x", ["x", "y"], ("x",)])
def test_stop_is_a_list_afterwards(stop: object) -> None:
    params = SamplingParams(stop=stop)  # type: ignore[arg-type]
    assert params.stop == ([stop] if isinstance(stop, str) else list(stop or ()))  # type: ignore[call-overload]


def test_conflicts_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="max_tokens"):
        SamplingParams(min_tokens=5, max_tokens=4)
    with pytest.raises(InvalidRequestError, match="detokenize"):
        SamplingParams(stop="x", detokenize=False)


@pytest.mark.parametrize(
    ("stream", "kind"), [(True, RequestOutputKind.DELTA), (False, RequestOutputKind.CUMULATIVE)]
)
def test_a_stream_means_deltas_unless_told_otherwise(stream: bool, kind: RequestOutputKind) -> None:
    assert SamplingParams(stream=stream).output_kind is kind
    final = SamplingParams(stream=stream, output_kind=RequestOutputKind.FINAL_ONLY)
    assert final.output_kind is RequestOutputKind.FINAL_ONLY


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(temprature=1.0)  # type: ignore[call-arg]
    with pytest.raises(msgspec.ValidationError, match="temprature"):
        msgspec.json.decode(b'{"temprature": 1.0}', type=SamplingParams)


def test_a_clone_shares_nothing() -> None:
    params = SamplingParams(stop=["a"], logit_bias={1: 1.0})
    clone = params.clone()
    assert clone == params
    assert isinstance(clone.stop, list)
    clone.stop.append("b")
    assert params.stop == ["a"]


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers() | st.text(max_size=2), inner),
    max_leaves=4,
)


@given(field=st.sampled_from(SamplingParams.__struct_fields__), value=junk)
def test_anything_is_accepted_or_refused_by_name(field: str, value: object) -> None:
    try:
        params = SamplingParams(**{field: value})  # type: ignore[arg-type]
    except InvalidRequestError as refused:
        assert refused.param is not None
        return
    params.validate()
