"""What a client does not read: kept in order, merged, bounded."""

from hypothesis import given
from hypothesis import strategies as st

from octavo.protocol.columns import pack_f32, pack_i32, pack_i64, unpack_i32
from octavo.protocol.replies import Deltas, Fault, LogprobColumns, Start, Status
from octavo.scheduler_proc.outbox import Kept, Outbox, merge

STATUS = Status(1, True, "")


def deltas(counts: list[int], *, first: int = 0, logprobs: bool = False) -> Deltas:
    size = len(counts)
    tokens = range(first, first + sum(counts))
    zeros = pack_i32([0] * size)
    told = LogprobColumns(pack_i32([1] * len(tokens)), pack_i32(tokens), pack_f32(tokens), pack_i32(tokens))
    return Deltas(
        pack_i64(range(size)),
        zeros,
        zeros,
        zeros,
        pack_i32(counts),
        zeros,
        zeros,
        pack_i32(tokens),
        (Start(0, 0, 0.0, 0.0),) if size else (),
        (Fault(size - 1, "X", "y"),) if size else (),
        told if logprobs else None,
    )


@given(st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=3), st.booleans()), min_size=1))
def test_merged_messages_say_what_the_single_ones_said(parts: list[tuple[list[int], bool]]) -> None:
    first = 0
    messages = []
    for counts, logprobs in parts:
        messages.append(deltas(counts, first=first, logprobs=logprobs))
        first += sum(counts)
    merged = messages[0]
    for message in messages[1:]:
        merged = merge(merged, message)
    assert unpack_i32(merged.tokens).tolist() == list(range(first))
    assert unpack_i32(merged.count).tolist() == [count for counts, _ in parts for count in counts]
    ends = [0]
    for counts, _ in parts:
        ends.append(ends[-1] + len(counts))
    assert [start.index for start in merged.starts] == ends[:-1]
    assert [fault.index for fault in merged.faults] == [end - 1 for end in ends[1:]]
    if any(logprobs for _, logprobs in parts):
        assert merged.logprobs is not None
        told = [logprobs for counts, logprobs in parts for _ in range(sum(counts))]
        assert unpack_i32(merged.logprobs.counts).tolist() == [int(each) for each in told]
        assert len(merged.logprobs.ranks) == len(merged.tokens)
    else:
        assert merged.logprobs is None


def test_order_is_kept_and_neighbours_merge() -> None:
    outbox = Outbox()
    for message in (deltas([1]), deltas([1], first=1), STATUS, deltas([1], first=2)):
        assert outbox.keep(b"c", message) is Kept.OK
    seen = []
    while b"c" in outbox:
        seen.append(outbox.first(b"c"))
        outbox.sent(b"c")
    assert seen == [merge(deltas([1]), deltas([1], first=1)), STATUS, deltas([1], first=2)]
    assert not outbox


def test_the_bound_is_in_bytes_and_each_clients_own() -> None:
    outbox = Outbox(bound=1000)
    kept = [outbox.keep(b"c", STATUS) for _ in range(8)]
    assert kept == [Kept.OK] * 3 + [Kept.TOO_MUCH] * 4 + [Kept.HOPELESS]
    assert outbox.keep(b"other", STATUS) is Kept.OK
    outbox.drop(b"c")
    assert outbox.clients() == [b"other"]
    assert outbox.keep(b"c", STATUS) is Kept.OK
