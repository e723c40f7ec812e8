"""The client's side of the wire without a socket: requests in, messages out; messages in, streams changed."""

import itertools
import logging
from collections.abc import Sequence

import msgspec

from ...protocol.codec import FINGERPRINT
from ...protocol.columns import pack_i32, unpack_i32, unpack_i64
from ...protocol.errors import (
    EngineDeadError,
    EngineUnavailableError,
    InvalidRequestError,
    OctavoError,
    RequestAbortedError,
    from_kind,
)
from ...protocol.ids import FinishReason, new_request_name, new_seed
from ...protocol.lifecycle import ModelLimits
from ...protocol.replies import (
    Accepted,
    Deltas,
    Rejected,
    SchedulerReply,
    Snapshot,
    Start,
    Status,
    Story,
    Welcome,
)
from ...protocol.requests import Abort, Alive, ClientHello, ClientMessage, Finish, Query, Submit
from ...protocol.sampling import SamplingParams
from ...protocol.validation import check_params, check_prompt
from ..text import Tokenizer
from .bad_words import bad_word_columns
from .logprobs import TokenLogprobs, split_logprobs
from .stream import Stream

_log = logging.getLogger(__name__)
_FINISH = tuple(FinishReason)


class ClientCore:
    """All open requests of one client.

    Attributes:
        outgoing: messages to send, in order; whoever owns the socket sends and clears them.
        limits: what requests must obey; None until the scheduler said so.
        ready, reason, fatal: whether a generation could run now, and if not, why, and whether it ever will.
    """

    def __init__(self, tokenizer: Tokenizer | None, name: str, *, recover: bool) -> None:
        """`recover`: keep requests open while the scheduler is away, and resubmit them to the next one."""
        self.outgoing: list[ClientMessage] = []
        self.limits: ModelLimits | None = None
        self.ready = False
        self.reason = "connecting to the scheduler"
        self.fatal = False
        self.tokenizer = tokenizer
        self.answers: dict[int, Snapshot | Story] = {}
        self._name = name
        self._recover = recover
        self._incarnation: int | None = None
        self._streams: dict[int, Stream] = {}
        self._numbers = itertools.count(1)
        self._changed: dict[int, Stream] = {}

    @property
    def num_open(self) -> int:
        return len(self._streams)

    def submit(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        now: float,
        *,
        name: str | None = None,
        priority: int = 0,
        user: str = "",
        cache_salt: str = "",
    ) -> Stream:
        """Start a request.

        Raises InvalidRequestError for a request the scheduler would refuse, EngineUnavailableError or
        EngineDeadError when no generation could run.
        """
        limits = self._require_limits()
        ids = list(prompt_ids)
        check_prompt(limits, len(ids), min(ids, default=0), max(ids, default=0))
        check_params(limits, params, len(ids))
        if self.tokenizer is None and params.bad_words:
            raise InvalidRequestError("bad_words need a tokenizer, and the model has none", param="bad_words")
        if self.tokenizer is None and params.stop:
            raise InvalidRequestError("stop strings need a tokenizer, and the model has none", param="stop")
        submit = Submit(
            request=next(self._numbers),
            attempt=0,
            name=(name or new_request_name())[:256],
            prompt=pack_i32(ids),
            params=params,
            seed=new_seed() if params.seed is None else params.seed & (2**64 - 1),
            priority=priority,
            user=user,
            cache_salt=cache_salt,
            bad_words=bad_word_columns(self.tokenizer, params.bad_words),
        )
        stream = Stream(submit, ids, self.tokenizer, arrival=now)
        self._streams[stream.number] = stream
        self.outgoing.append(submit)
        return stream

    def abort(self, stream: Stream) -> None:
        """End a request that nobody wants any more. Does nothing for one that has ended."""
        if self._streams.pop(stream.number, None) is not None:
            self.outgoing.append(Abort(stream.number))
            stream.fail(RequestAbortedError(f"request {stream.name} was aborted"))

    def query(self, token: int, name: str = "") -> None:
        """Ask for a `Snapshot`, or the `Story` of a request; the answer appears in `answers[token]`."""
        self.outgoing.append(Query(token, name))

    def alive(self) -> None:
        """Tell the scheduler that this client lives, and ask for its status."""
        self.outgoing.append(Alive())

    def connected(self) -> None:
        """A scheduler is at the other end: introduce this client."""
        self.outgoing.insert(0, ClientHello(FINGERPRINT, self._name))

    def disconnected(self, reason: str, *, fatal: bool = False) -> list[Stream]:
        """The scheduler is gone. Returns the streams that failed with it."""
        self.ready, self.reason, self.fatal = False, reason, fatal
        if self._recover and not fatal:
            return []
        failed = list(self._streams.values())
        for stream in failed:
            stream.fail(EngineDeadError(reason))
        self._streams.clear()
        if not fatal:  # should it live after all, it need not go on with them
            self.outgoing += [Abort(stream.number) for stream in failed]
        return failed

    def on_message(self, reply: SchedulerReply, now: float) -> list[Stream]:
        """Take a message of the scheduler; returns the streams that changed."""
        self._changed = {}
        if isinstance(reply, Deltas):
            self._on_deltas(reply, now)
        elif isinstance(reply, Accepted):
            stream = self._current(reply.request, reply.attempt)
            if stream is not None:
                stream.accepted = True
                self._changed[stream.number] = stream
        elif isinstance(reply, Rejected):
            self._on_rejected(reply)
        elif isinstance(reply, Status):
            self.ready, self.reason, self.fatal = reply.ready, reply.reason, reply.fatal
            if reply.fatal:
                return self.disconnected(reply.reason, fatal=True)
        elif isinstance(reply, Welcome):
            self._on_welcome(reply, now)
        else:
            self.answers[reply.token] = reply
        return list(self._changed.values())

    def _require_limits(self) -> ModelLimits:
        if self.fatal:
            raise EngineDeadError(self.reason)
        if self.limits is None or not (self.ready or self._recover):
            raise EngineUnavailableError(f"the engine is not ready: {self.reason}")
        return self.limits

    def _current(self, number: int, attempt: int) -> Stream | None:
        stream = self._streams.get(number)
        return stream if stream is not None and stream.attempt == attempt else None

    def _on_welcome(self, welcome: Welcome, now: float) -> None:
        self.limits, self.ready, self.reason = welcome.limits, welcome.ready, welcome.reason
        known, self._incarnation = self._incarnation, welcome.incarnation
        if known is not None and known != welcome.incarnation:
            for stream in self._streams.values():
                self._resubmit(stream, now)

    def _resubmit(self, stream: Stream, now: float) -> None:
        """Take a request up again where it stopped."""
        stream.submit = msgspec.structs.replace(
            stream.submit,
            attempt=stream.attempt + 1,
            age_ms=(now - stream.arrival) * 1e3,
            delivered=tuple(pack_i32(choice.token_ids) for choice in stream.choices),
            ended=tuple(choice.index for choice in stream.choices if choice.ended),
        )
        self.outgoing.append(stream.submit)

    def _on_rejected(self, reply: Rejected) -> None:
        stream = self._current(reply.request, reply.attempt)
        if stream is None:
            return
        error = from_kind(
            reply.kind, reply.message, param=reply.param or None, retry_after=reply.retry_after or None
        )
        self._fail(stream, error)

    def _on_deltas(self, deltas: Deltas, now: float) -> None:
        requests, attempts = unpack_i64(deltas.request), unpack_i32(deltas.attempt)
        choices, starts = unpack_i32(deltas.choice), unpack_i32(deltas.start)
        counts, finishes = unpack_i32(deltas.count).tolist(), unpack_i32(deltas.finish)
        stop_tokens, tokens = unpack_i32(deltas.stop_token), unpack_i32(deltas.tokens).tolist()
        logprobs = split_logprobs(deltas.logprobs) if deltas.logprobs is not None else None
        for start in deltas.starts:
            self._on_start(self._current(requests[start.index], attempts[start.index]), start, now)
        faults = {fault.index: fault for fault in deltas.faults}
        first = 0
        for index, count in enumerate(counts):
            end = first + count
            stream = self._streams.get(requests[index])
            if stream is not None and stream.attempt == attempts[index]:
                self._changed[stream.number] = stream
                if index in faults:
                    self._fail(stream, from_kind(faults[index].kind, faults[index].message))
                else:
                    self._add(
                        stream,
                        choices[index],
                        starts[index],
                        tokens[first:end],
                        _FINISH[finishes[index]],
                        stop_tokens[index],
                        _asked(logprobs, first, end),
                        now,
                    )
            first = end

    def _on_start(self, stream: Stream | None, start: Start, now: float) -> None:
        if stream is not None and stream.first_token_at is None:
            stream.first_token_at = now
            stream.num_cached = start.num_cached
            stream.queued_ms = start.queued_ms
            stream.prefill_ms = start.prefill_ms

    def _add(
        self,
        stream: Stream,
        choice: int,
        start: int,
        tokens: list[int],
        finish: FinishReason,
        stop_token: int,
        logprobs: list[TokenLogprobs] | None,
        now: float,
    ) -> None:
        try:
            stopped = stream.add(choice, start, tokens, finish, stop_token, logprobs)
        except EngineDeadError as error:
            self.outgoing.append(Abort(stream.number))
            self._fail(stream, error)
            return
        if stopped:
            self.outgoing.append(Finish(stream.number, choice, len(stream.choices[choice].token_ids)))
        if stream.ended:
            stream.finished_at = now
            self._streams.pop(stream.number, None)

    def _fail(self, stream: Stream, error: OctavoError) -> None:
        stream.fail(error)
        self._changed[stream.number] = stream
        self._streams.pop(stream.number, None)


def _asked(logprobs: list[TokenLogprobs | None] | None, first: int, end: int) -> list[TokenLogprobs] | None:
    if logprobs is None:
        return None
    return [entry for entry in logprobs[first:end] if entry is not None]
