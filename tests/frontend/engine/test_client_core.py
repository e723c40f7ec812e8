"""ClientCore: whatever the wire repeats, delays or loses, each choice has its tokens once and in order."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.frontend.engine.client_core import ClientCore
from octavo.frontend.engine.stream import Stream
from octavo.protocol.columns import unpack_i32
from octavo.protocol.errors import (
    EngineDeadError,
    EngineUnavailableError,
    InvalidRequestError,
    QueueFullError,
    RequestAbortedError,
    RequestFailedError,
    RequestTimeoutError,
)
from octavo.protocol.ids import FinishReason
from octavo.protocol.replies import Accepted, Rejected, Status
from octavo.protocol.requests import Abort, Finish, Submit
from octavo.protocol.sampling import SamplingParams
from octavo.tests.support.text import tokenizer
from octavo.tests.support.wire import Row, deltas, welcome


def ready_core(*, recover: bool = False, text: bool = False) -> ClientCore:
    core = ClientCore(tokenizer("B") if text else None, "test", recover=recover)
    core.on_message(welcome(), 0.0)
    return core


def submit(core: ClientCore, **params: object) -> Stream:
    stream = core.submit([5, 6], SamplingParams(max_tokens=100, **params), 0.0)  # type: ignore[arg-type]
    core.outgoing.clear()
    return stream


@dataclass
class Told:
    """A choice of the scheduler's, and what the client was told of it."""

    stream: Stream
    index: int
    script: list[int]
    sent: int = 0
    taken: list[int] = field(default_factory=list)


def tell(data: st.DataObject, told: Told) -> Row:
    """Some tokens on from some place the client knows: all new, all old, or both."""
    start = data.draw(st.integers(0, told.sent))
    end = len(told.script) - data.draw(st.integers(0, len(told.script) - told.sent))
    told.sent = end
    last = end == len(told.script)
    return Row(
        told.stream.number,
        told.script[start:end],
        start,
        told.stream.attempt,
        told.index,
        FinishReason.LENGTH if last else FinishReason.NONE,
    )


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_wire_gives_every_token_once_and_leaves_nothing(data: st.DataObject) -> None:
    core = ready_core(recover=True)
    counts = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    streams = [submit(core, n=count) for count in counts]
    scripts = st.lists(st.integers(0, 299), min_size=1, max_size=12)
    open_choices = [
        Told(stream, choice.index, data.draw(scripts)) for stream in streams for choice in stream.choices
    ]
    everything, incarnation = list(open_choices), 1
    while open_choices:
        action = data.draw(st.sampled_from(["tell", "tell", "tell", "restart", "stale", "take"]))
        told = data.draw(st.sampled_from(open_choices))
        if action == "tell":
            core.on_message(deltas(tell(data, told)), 1.0)
        elif action == "restart" and incarnation < 4:
            incarnation += 1
            check_restart(core, incarnation)
        elif action == "stale":
            row = Row(told.stream.number, [1] * 20, 0, told.stream.attempt - 1, told.index)
            assert core.on_message(deltas(row), 1.0) == []
        take(streams, everything)
        open_choices = [told for told in open_choices if told.sent < len(told.script)]
    take(streams, everything)
    for told in everything:
        assert told.taken == told.script == told.stream.choices[told.index].token_ids
        assert told.stream.ended and told.stream.error is None
    assert core.num_open == 0
    core.outgoing.clear()
    core.on_message(welcome(99), 2.0)
    assert core.outgoing == []


def check_restart(core: ClientCore, incarnation: int) -> None:
    core.outgoing.clear()
    core.disconnected("gone")
    core.on_message(welcome(incarnation), 1.5)
    again = [message for message in core.outgoing if isinstance(message, Submit)]
    assert len(again) == core.num_open
    for message in again:
        stream = core._streams[message.request]
        assert stream.attempt == message.attempt and message.age_ms == 1500
        assert [list(unpack_i32(column)) for column in message.delivered] == [
            choice.token_ids for choice in stream.choices
        ]
        assert message.ended == tuple(choice.index for choice in stream.choices if choice.ended)


def take(streams: list[Stream], everything: list[Told]) -> None:
    for stream in streams:
        for update in stream.take():
            (told,) = [one for one in everything if one.stream is stream and one.index == update.index]
            told.taken += update.token_ids


def test_lost_token_fails_the_request_and_aborts_it() -> None:
    core = ready_core()
    stream = submit(core)
    core.on_message(deltas(Row(stream.number, [7], 0)), 1.0)
    assert core.on_message(deltas(Row(stream.number, [9], 2)), 1.0) == [stream]
    assert isinstance(stream.error, RequestFailedError) and "1 to 1" in str(stream.error)
    assert core.outgoing == [Abort(stream.number)] and core.num_open == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=8))
def test_stop_string_cuts_tokens_and_tells_the_scheduler(sizes: list[int]) -> None:
    core = ready_core(text=True)
    ids = tokenizer("B").encode("abcDEFGz", add_special_tokens=False)
    stream = submit(core, stop=["DEFG"])
    start, text = 0, ""
    for size in [*sizes, len(ids)]:
        core.on_message(deltas(Row(stream.number, ids[start : start + size], start)), 1.0)
        text += "".join(update.text for update in stream.take())
        start += size
    choice = stream.choices[0]
    assert (text, choice.token_ids, choice.stop_reason) == ("abc", ids[:7], "DEFG")
    assert core.outgoing == [Finish(stream.number, 0, 7)] and core.num_open == 0


def test_stop_string_with_the_last_token_needs_no_finish() -> None:
    core = ready_core(text=True)
    ids = tokenizer("B").encode("ab", add_special_tokens=False)
    stream = submit(core, stop=["b"])
    core.on_message(deltas(Row(stream.number, ids, 0, finish=FinishReason.LENGTH)), 1.0)
    (update,) = stream.take()
    assert (update.text, update.finish_reason, update.stop_reason) == ("a", "stop", "b")
    assert core.outgoing == [] and core.num_open == 0


def test_stop_token_is_counted_and_is_no_text() -> None:
    core = ready_core(text=True)
    ids = tokenizer("B").encode("ab", add_special_tokens=False)
    stream = submit(core, stop_token_ids=[ids[1]])
    core.on_message(deltas(Row(stream.number, ids, 0, finish=FinishReason.STOP, stop_token=ids[1])), 1.0)
    (update,) = stream.take()
    assert (update.text, list(update.token_ids), update.stop_reason) == ("a", ids, ids[1])


def test_fault_keeps_what_came_before_and_touches_nobody_else() -> None:
    core = ready_core()
    one, other = submit(core), submit(core)
    core.on_message(deltas(Row(one.number, [7]), Row(other.number, [8])), 1.0)
    late = Row(one.number, start=1, finish=FinishReason.TIMEOUT, fault=("RequestTimeoutError", "too late"))
    assert core.on_message(deltas(late, Row(other.number, [9], 1)), 1.0) == [one, other]
    assert isinstance(one.error, RequestTimeoutError) and one.choices[0].token_ids == [7]
    assert other.error is None and other.choices[0].token_ids == [8, 9]
    assert core.num_open == 1


def test_refusal_carries_its_kind_field_and_delay() -> None:
    core = ready_core()
    stream = submit(core)
    assert core.on_message(Rejected(stream.number, 1, "QueueFullError", "old attempt"), 1.0) == []
    core.on_message(Rejected(stream.number, 0, "QueueFullError", "full", retry_after=3.0), 1.0)
    assert isinstance(stream.error, QueueFullError) and stream.error.retry_after == 3.0
    assert core.num_open == 0


def test_abort_says_so_once_and_later_tokens_are_ignored() -> None:
    core = ready_core()
    stream = submit(core)
    core.abort(stream)
    core.abort(stream)
    assert core.outgoing == [Abort(stream.number)]
    assert core.on_message(deltas(Row(stream.number, [7])), 1.0) == []
    assert core.on_message(Accepted(stream.number, 0, 0, -1.0), 1.0) == []
    assert isinstance(stream.error, RequestAbortedError) and stream.take() == []


def test_without_recovery_a_lost_scheduler_ends_its_requests() -> None:
    core = ready_core()
    stream = submit(core)
    assert core.disconnected("the scheduler is gone") == [stream]
    assert isinstance(stream.error, EngineDeadError) and core.num_open == 0
    assert core.outgoing == [Abort(stream.number)]
    with pytest.raises(EngineUnavailableError, match="gone"):
        submit(core)


@pytest.mark.parametrize("recover", [True, False])
def test_fatal_status_ends_all_with_its_reason(recover: bool) -> None:
    core = ready_core(recover=recover)
    stream = submit(core)
    assert core.on_message(Status(1, False, "worker 0 died", fatal=True), 1.0) == [stream]
    assert str(stream.error) == "worker 0 died"
    with pytest.raises(EngineDeadError, match="worker 0 died"):
        submit(core)


def test_requests_the_scheduler_would_refuse_are_not_sent() -> None:
    core = ready_core()
    for ids, params in (
        ([], SamplingParams()),
        ([300], SamplingParams()),
        ([5] * 4096, SamplingParams()),
        ([5], SamplingParams(stop=["x"])),
        ([5], SamplingParams(bad_words=["x"])),
    ):
        with pytest.raises(InvalidRequestError):
            core.submit(ids, params, 0.0)
    assert core.outgoing == [] and core.num_open == 0
