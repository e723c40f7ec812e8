"""Frames: every message survives the wire, and nothing else gets through."""

import math
import typing
from functools import cache
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.protocol import codec, columns
from octavo.protocol.codec import Decoder, encode
from octavo.protocol.errors import ProtocolError
from octavo.protocol.requests import Abort, Alive, ClientHello, Submit
from octavo.protocol.sampling import SamplingParams
from octavo.protocol.steps import StepPlan, Stop

DECODERS: dict[str, Decoder[Any]] = {
    "client": codec.client_decoder(),
    "reply": codec.reply_decoder(),
    "worker": codec.worker_decoder(),
    "to_worker": codec.to_worker_decoder(),
}
UNIONS = {
    "client": codec.ClientMessage,
    "reply": codec.SchedulerReply,
    "worker": codec.WorkerMessage,
    "to_worker": codec.ToWorker,
}

INT64 = st.integers(-(2**63), 2**64 - 1)  # the integers that MessagePack has


def params() -> st.SearchStrategy[SamplingParams]:
    return st.builds(
        SamplingParams,
        n=st.integers(1, 128),
        temperature=st.floats(0, 2),
        top_p=st.floats(0, 1),
        seed=st.none() | st.integers(-(2**63), 2**64 - 1),
        max_tokens=st.none() | st.integers(1, 1000),
        stop=st.lists(st.text(min_size=1, max_size=8), max_size=3),
        logit_bias=st.none() | st.dictionaries(st.integers(0, 100), st.floats(-100, 100), max_size=3),
        logprobs=st.none() | st.integers(0, 20),
    )


FIELDS: dict[object, st.SearchStrategy[object]] = {
    int: INT64,
    float: st.floats(allow_nan=False),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=20),
    bool: st.booleans(),
    type(None): st.none(),
    SamplingParams: params(),
}


def field(hint: object) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    if hint in FIELDS:
        return FIELDS[hint]
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return st.lists(field(arguments[0]), max_size=3).map(tuple)
    if arguments:
        return st.one_of(*map(field, arguments))
    return struct(hint)  # type: ignore[arg-type]


@cache
def struct(kind: type[msgspec.Struct]) -> st.SearchStrategy[msgspec.Struct]:
    return st.builds(kind, **{name: field(hint) for name, hint in typing.get_type_hints(kind).items()})


def union(wire: str) -> st.SearchStrategy[msgspec.Struct]:
    """Messages of a wire, all their fields filled."""
    return st.one_of(*map(struct, typing.get_args(UNIONS[wire])))


@pytest.mark.parametrize("wire", DECODERS)
@given(data=st.data())
def test_every_message_survives_the_wire(wire: str, data: st.DataObject) -> None:
    message = data.draw(union(wire))
    assert DECODERS[wire].decode(encode(message)) == message


@pytest.mark.parametrize("wire", DECODERS)
@given(frame=st.binary(max_size=200))
def test_random_bytes_are_refused(wire: str, frame: bytes) -> None:
    try:
        message = DECODERS[wire].decode(frame)
    except ProtocolError:
        return
    assert isinstance(message, msgspec.Struct)


@given(data=st.data())
def test_changed_frames_are_refused_or_decode(data: st.DataObject) -> None:
    frame = bytearray(encode(data.draw(union("client"))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(frame) - 1))
        frame[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(frame)))
    try:
        codec.client_decoder().decode(bytes(frame[:cut]))
    except ProtocolError:
        return


NOT_MESSAGES = {
    "empty": b"",
    "nil": msgpack.packb(None),
    "a map": msgpack.packb({"type": "Alive"}),
    "no name": msgpack.packb([]),
    "unknown name": msgpack.packb(["Shutdown"]),
    "of another wire": msgpack.packb(["Stop"]),
    "too few fields": msgpack.packb(["Abort"]),
    "too many fields": msgpack.packb(["Abort", 1, 2]),
    "wrong type": msgpack.packb(["Abort", "1"]),
    "float for an int": msgpack.packb(["Abort", 1.5]),
    "trailing bytes": msgpack.packb(["Alive"]) + b"\x00",
    "text for bytes": msgpack.packb(["Submit", 1, 0, "r", "abc", {}, 1]),
    "unknown parameter": msgpack.packb(["Submit", 1, 0, "r", b"", {"temprature": 1.0}, 1]),
    "parameter out of range": msgpack.packb(["Submit", 1, 0, "r", b"", {"temperature": -1.0}, 1]),
    "not a number": msgpack.packb(["Submit", 1, 0, "r", b"", {"temperature": math.nan}, 1]),
    "deeply nested": b"\x91" * 100_000,
    "a promise of gigabytes": b"\x92\xa5Abort\xdb\xff\xff\xff\xff",
}


@pytest.mark.parametrize("what", NOT_MESSAGES)
def test_it_is_not_a_message(what: str) -> None:
    with pytest.raises(ProtocolError):
        codec.client_decoder().decode(NOT_MESSAGES[what])


def test_a_frame_beyond_the_bound_is_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_FRAME", 10)
    with pytest.raises(ProtocolError, match="11 bytes"):
        codec.client_decoder().decode(b"\x91" + b"\xa5Alive" + b"\xc0" * 4)


def test_a_foreign_client_may_leave_out_defaults() -> None:
    frame = msgpack.packb(["Submit", 7, 0, "r", b"\x01\x00\x00\x00", {"max_tokens": 3}, 42])
    submit = codec.client_decoder().decode(frame)
    assert isinstance(submit, Submit)
    assert (submit.request, submit.seed, submit.params.max_tokens, submit.priority) == (7, 42, 3, 0)


def test_messages_are_arrays_that_start_with_their_name() -> None:
    assert msgpack.unpackb(encode(Alive())) == ["Alive"]
    assert msgpack.unpackb(encode(Stop())) == ["Stop"]
    assert msgpack.unpackb(encode(ClientHello("f", "n"))) == ["ClientHello", "f", "n"]
    assert msgpack.unpackb(encode(Abort(5))) == ["Abort", 5]


def test_the_fingerprint_follows_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(StepPlan, frozen=True):
        extra: int

    before = codec._fingerprint()
    monkeypatch.setattr(codec, "messages", lambda: [Other])
    assert codec._fingerprint() != before
    assert before == codec.FINGERPRINT


int32s = st.lists(st.integers(-(2**31), 2**31 - 1))


@given(int32s)
def test_int32_columns_are_little_endian(numbers: list[int]) -> None:
    column = columns.pack_i32(numbers)
    assert column == b"".join(number.to_bytes(4, "little", signed=True) for number in numbers)
    assert columns.unpack_i32(column).tolist() == numbers


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_int64_columns_survive(numbers: list[int]) -> None:
    assert columns.unpack_i64(columns.pack_i64(numbers)).tolist() == numbers


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_float32_columns_survive(numbers: list[float]) -> None:
    assert columns.unpack_f32(columns.pack_f32(numbers)).tolist() == numbers


@pytest.mark.parametrize("unpack", [columns.unpack_i32, columns.unpack_i64, columns.unpack_f32])
def test_a_cut_column_is_refused(unpack: object) -> None:
    with pytest.raises(ProtocolError, match="7 bytes"):
        unpack(b"1234567")  # type: ignore[operator]


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1])
def test_a_number_that_does_not_fit_its_column_is_an_error(number: int) -> None:
    with pytest.raises(OverflowError):
        columns.pack_i32([number])
