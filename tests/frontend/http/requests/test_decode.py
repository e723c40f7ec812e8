"""Bodies to structs, and the names in the errors."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.frontend.http.requests.chat import ChatRequest
from octavo.frontend.http.requests.completions import CompletionRequest
from octavo.frontend.http.requests.decode import BodyDecoder
from octavo.frontend.http.requests.fields import IGNORED, UNSUPPORTED, Endpoint
from octavo.protocol.errors import InvalidRequestError, UnsupportedError
from octavo.protocol.sampling import RequestOutputKind, SamplingParams

SCHEMAS = {Endpoint.COMPLETIONS: CompletionRequest, Endpoint.CHAT: ChatRequest}
STARTS = {Endpoint.COMPLETIONS: {"prompt": "x"}, Endpoint.CHAT: {"messages": [{"role": "user"}]}}
LISTED = [(endpoint, name) for endpoint in SCHEMAS for name in UNSUPPORTED[endpoint]]


def decode(endpoint: Endpoint, *, ignore_unknown_fields: bool = False, **fields: object) -> msgspec.Struct:
    decoder = BodyDecoder(SCHEMAS[endpoint], endpoint, ignore_unknown_fields=ignore_unknown_fields)
    return decoder.decode(msgspec.json.encode({**STARTS[endpoint], **fields}))


@pytest.mark.parametrize(("endpoint", "name"), LISTED, ids=str)
def test_a_listed_feature_is_refused_unless_its_value_asks_for_nothing(endpoint: Endpoint, name: str) -> None:
    for harmless in (None, *UNSUPPORTED[endpoint][name]):
        decode(endpoint, **{name: harmless})
    with pytest.raises(UnsupportedError, match=name) as caught:
        decode(endpoint, ignore_unknown_fields=True, **{name: {"a": ["feature"]}})
    assert caught.value.param == name


@pytest.mark.parametrize("endpoint", SCHEMAS)
def test_fields_without_effect_take_any_value(endpoint: Endpoint) -> None:
    for name in IGNORED[endpoint]:
        for value in (None, 1, "x", {"a": [1]}):
            decode(endpoint, **{name: value})


def test_unknown_fields_can_be_ignored() -> None:
    decode(Endpoint.COMPLETIONS, ignore_unknown_fields=True, colour=1)
    with pytest.raises(InvalidRequestError, match="'colour'"):
        decode(Endpoint.COMPLETIONS, colour=1)


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"n": "2"}, "n", "n: expected `int | null`, got `str`"),
        ({"stop": ["a", 1]}, "stop[1]", "stop[1]: expected `str`, got `int`"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "logit_bias: expected `int`, got `str`"),
        ({"stream_options": {"x": 1}}, "stream_options.x", "unknown field 'stream_options.x'"),
    ],
)
def test_messages_begin_with_the_field(fields: dict[str, object], param: str, message: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode(Endpoint.COMPLETIONS, **fields)
    assert (caught.value.param, caught.value.message) == (param, message)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_body_or_a_bad_request(body: bytes) -> None:
    decoder = BodyDecoder(ChatRequest, Endpoint.CHAT, ignore_unknown_fields=False)
    with pytest.raises(InvalidRequestError):
        decoder.decode(body)


def params_of(endpoint: Endpoint, bound: float = 0.0, /, **fields: object) -> SamplingParams:
    request = decode(endpoint, **fields)
    assert isinstance(request, CompletionRequest | ChatRequest)
    return request.params(bound)


def test_null_is_the_default() -> None:
    names = [name for name in CompletionRequest.__struct_fields__ if name != "prompt"]
    nothing = params_of(Endpoint.COMPLETIONS, **dict.fromkeys(names))
    assert nothing == params_of(Endpoint.COMPLETIONS)
    assert nothing == SamplingParams(output_kind=RequestOutputKind.DELTA)


def test_the_two_names_of_max_tokens() -> None:
    assert params_of(Endpoint.CHAT).max_tokens is None
    assert params_of(Endpoint.CHAT, max_tokens=3).max_tokens == 3
    assert params_of(Endpoint.CHAT, max_tokens=3, max_completion_tokens=4).max_tokens == 4


@pytest.mark.parametrize(
    ("asked", "bound", "used"), [(None, 0, None), (None, 5, 5), (3, 5, 3), (9, 5, 5), (9, 0, 9)]
)
def test_the_server_bounds_the_time(asked: float | None, bound: float, used: float | None) -> None:
    assert params_of(Endpoint.CHAT, bound, timeout=asked).timeout == used
