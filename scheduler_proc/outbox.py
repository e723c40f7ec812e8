"""What could not be sent to clients yet: kept in order, merged, and bounded in bytes."""

from dataclasses import dataclass, field
from enum import Enum, auto

from ..protocol.base import Message
from ..protocol.replies import Deltas, Fault, LogprobColumns, Start

MAX_UNSENT = 4 << 20  # bytes a client may leave unread beyond what ZeroMQ and the kernel hold
_OTHER_BYTES = 256  # counted for a message that is no Deltas


def size_of(message: Message) -> int:
    """Bytes that a message is counted for."""
    if not isinstance(message, Deltas):
        return _OTHER_BYTES
    entries = len(message.request) // 8
    logprobs = message.logprobs
    told = len(logprobs.tokens) + len(logprobs.values) if logprobs else 0
    told += sum(len(part.logprobs.tokens) + len(part.logprobs.values) for part in message.prompt_logprobs)
    return 32 * entries + len(message.tokens) + told + 64 * (len(message.starts) + len(message.faults))


def merge(first: Deltas, second: Deltas) -> Deltas:
    """One message that says what two said one after the other."""
    size = len(first.request) // 8
    return Deltas(
        request=first.request + second.request,
        attempt=first.attempt + second.attempt,
        choice=first.choice + second.choice,
        start=first.start + second.start,
        count=first.count + second.count,
        finish=first.finish + second.finish,
        stop_token=first.stop_token + second.stop_token,
        tokens=first.tokens + second.tokens,
        starts=first.starts
        + tuple(Start(s.index + size, s.num_cached, s.queued_ms, s.prefill_ms) for s in second.starts),
        faults=first.faults + tuple(Fault(f.index + size, f.kind, f.message) for f in second.faults),
        logprobs=_merge_logprobs(first, second),
        prompt_logprobs=first.prompt_logprobs + second.prompt_logprobs,
    )


def _merge_logprobs(first: Deltas, second: Deltas) -> LogprobColumns | None:
    if first.logprobs is None and second.logprobs is None:
        return None
    one, two = (
        deltas.logprobs or LogprobColumns(bytes(len(deltas.tokens)), b"", b"", bytes(len(deltas.tokens)))
        for deltas in (first, second)
    )
    return LogprobColumns(
        one.counts + two.counts, one.tokens + two.tokens, one.values + two.values, one.ranks + two.ranks
    )


class Kept(Enum):
    """What became of a message that was to be kept."""

    OK = auto()
    TOO_MUCH = auto()  # kept, but the bound is passed: the client's requests must end
    HOPELESS = auto()  # the bound is passed twice, by a client that asks on without reading


@dataclass(slots=True)
class _Pending:
    messages: list[Message] = field(default_factory=list)
    size: int = 0


class Outbox:
    """Unsent messages by client identity. `bound` is in bytes for each client."""

    def __init__(self, bound: int = MAX_UNSENT) -> None:
        self._bound = bound
        self._pending: dict[bytes, _Pending] = {}

    def __bool__(self) -> bool:
        return bool(self._pending)

    def __contains__(self, client: bytes) -> bool:
        return client in self._pending

    def clients(self) -> list[bytes]:
        return list(self._pending)

    def keep(self, client: bytes, message: Message) -> Kept:
        """Keep a message behind those kept before."""
        pending = self._pending.setdefault(client, _Pending())
        last = pending.messages[-1] if pending.messages else None
        if isinstance(last, Deltas) and isinstance(message, Deltas):
            pending.messages[-1] = merge(last, message)
        else:
            pending.messages.append(message)
        pending.size += size_of(message)
        if pending.size <= self._bound:
            return Kept.OK
        return Kept.TOO_MUCH if pending.size <= 2 * self._bound else Kept.HOPELESS

    def first(self, client: bytes) -> Message:
        """The oldest message kept for a client."""
        return self._pending[client].messages[0]

    def sent(self, client: bytes) -> None:
        """The oldest message went out."""
        pending = self._pending[client]
        pending.size -= size_of(pending.messages.pop(0))
        if not pending.messages:
            del self._pending[client]

    def drop(self, client: bytes) -> None:
        """Forget what is kept for a client."""
        self._pending.pop(client, None)
