"""The client's side of the wire without a socket: requests in, messages out; messages in, streams changed."""

import itertools
from collections.abc import Callable, Sequence

import msgspec

from ...protocol.codec import FINGERPRINT
from ...protocol.columns import pack_i32, unpack_i32, unpack_i64
from ...protocol.errors import (
    EngineDeadError,
    EngineUnavailableError,
    InvalidRequestError,
    OctavoError,
    ProtocolError,
    RequestAbortedError,
    RequestFailedError,
    from_kind,
)
from ...protocol.ids import FinishReason, new_request_name, new_seed
from ...protocol.lifecycle import ModelLimits
from ...protocol.replies import (
    Accepted,
    Deltas,
    PromptLogprobs,
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
from ...protocol.validation import check_params, check_priority, check_prompt
from ..text import Tokenizer
from .bad_words import bad_word_columns
from .logprobs import TokenLogprobs, split_logprobs
from .stream import Stream
from .structured import check_structured_outputs

_FINISH = tuple(FinishReason)
_MAX_NAME = 256  # characters of a request's name on the wire


class ClientCore:
    """All open requests of one client.

    Attributes:
        outgoing: messages to send, in order; whoever owns the socket sends and clears them.
        limits: what requests must obey; None until the scheduler said so.
        ready, reason, fatal: whether a generation could run now, and if not, why, and whether it ever will.
        answers: of queries, by their token.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        name: str,
        *,
        recover: bool,
        draw_seed: Callable[[], int] = new_seed,
    ) -> None:
        """`recover`: keep requests open while the scheduler is away, and resubmit them to the next one.

        `draw_seed` gives the 64-bit seed of a request that has none.
        """
        self.outgoing: list[ClientMessage] = []
        self.limits: ModelLimits | None = None
        self.ready = False
        self.reason = "connecting to the scheduler"
        self.fatal = False
        self.tokenizer = tokenizer
        self.answers: dict[int, Snapshot | Story] = {}
        self._name = name
        self._recover = recover
        self._draw_seed = draw_seed
        self._streams: dict[int, Stream] = {}
        self._numbers = itertools.count(1)

    @property
    def num_open(self) -> int:
        """Requests that have not ended."""
        return len(self._streams)

    def check(self, prompt_ids: Sequence[int], params: SamplingParams) -> SamplingParams:
        """The parameters as they are sent.

        Raises InvalidRequestError for a request the scheduler or a worker would refuse,
        EngineUnavailableError or EngineDeadError when no generation could run. A grammar that was not
        compiled lately takes time.
        """
        limits = self._require_limits()
        check_prompt(limits, len(prompt_ids), min(prompt_ids, default=0), max(prompt_ids, default=0))
        check_params(limits, params, len(prompt_ids))
        for field in ("bad_words", "stop"):
            if self.tokenizer is None and getattr(params, field):
                raise InvalidRequestError(f"{field} needs a tokenizer, and the model has none", param=field)
        if params.structured_outputs is not None and not limits.eos_token_ids:
            raise InvalidRequestError(
                "structured_outputs needs a model with an end token", param="structured_outputs"
            )
        return check_structured_outputs(params)

    def submit(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        now: float,
        *,
        arrival: float | None = None,
        name: str | None = None,
        priority: int = 0,
        user: str = "",
        cache_salt: str = "",
    ) -> Stream:
        """Start a request that arrived at `arrival`, by default now; raises as `check`.

        Both times are of `time.monotonic`. Time limits count from the arrival.
        """
        params = self.check(prompt_ids, params)
        check_priority(priority)
        ids = prompt_ids if isinstance(prompt_ids, list) else list(prompt_ids)
        arrival = now if arrival is None else arrival
        submit = Submit(
            request=next(self._numbers),
            attempt=0,
            name=(name or new_request_name())[:_MAX_NAME],
            prompt=pack_i32(ids),
            params=params,
            seed=self._draw_seed() if params.seed is None else params.seed & (2**64 - 1),
            priority=priority,
            age_ms=(now - arrival) * 1e3,
            user=user,
            cache_salt=cache_salt,
            bad_words=bad_word_columns(self.tokenizer, params.bad_words),
        )
        stream = self._streams[submit.request] = Stream(submit, ids, self.tokenizer, arrival=arrival)
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
        """A scheduler is at the other end, known or new: introduce this client.

        What open requests need is sent when it answers; until then only ends and questions are left to say.
        """
        kept = [message for message in self.outgoing if isinstance(message, Abort | Query)]
        self.outgoing[:] = [ClientHello(FINGERPRINT, self._name), *kept]

    def suspended(self, reason: str) -> None:
        """No generation could run now; what becomes of open requests is not known yet."""
        self.ready, self.reason = False, reason

    def disconnected(self, reason: str, *, fatal: bool = False) -> list[Stream]:
        """The scheduler is gone. Returns the streams that failed with it."""
        self.suspended(reason)
        self.fatal = fatal
        if self._recover and not fatal:
            return []
        failed = list(self._streams.values())
        self._streams.clear()
        for stream in failed:
            stream.fail(EngineDeadError(reason))
        # Should it live after all, or have received what was meant for another, it need not go on.
        self.outgoing[:] = [] if fatal else [Abort(stream.number) for stream in failed]
        return failed

    def on_message(self, reply: SchedulerReply, now: float) -> list[Stream]:
        """Take a message of the scheduler; returns the streams that changed.

        Raises ProtocolError for a message that contradicts itself; nothing of it counts from there on.
        """
        if isinstance(reply, Deltas):
            return self._on_deltas(reply, now)
        if isinstance(reply, Accepted):
            stream = self._current(reply.request, reply.attempt)
            if stream is None:
                return []
            stream.accepted = True
            return [stream]
        if isinstance(reply, Rejected):
            return self._on_rejected(reply, now)
        if isinstance(reply, Status):
            if reply.fatal:
                return self.disconnected(reply.reason, fatal=True)
            self.ready, self.reason = reply.ready and self.limits is not None, reply.reason
        elif isinstance(reply, Welcome):
            self.limits, self.ready, self.reason = reply.limits, reply.ready, reply.reason
            self.fatal = False
            for stream in self._streams.values():
                self._resubmit(stream, now)
        else:
            self.answers[reply.token] = reply
        return []

    def _require_limits(self) -> ModelLimits:
        if self.fatal:
            raise EngineDeadError(self.reason)
        if self.limits is None or not (self.ready or self._recover):
            raise EngineUnavailableError(f"the engine is not ready: {self.reason}")
        return self.limits

    def _current(self, number: int, attempt: int) -> Stream | None:
        stream = self._streams.get(number)
        return stream if stream is not None and stream.attempt == attempt else None

    def _resubmit(self, stream: Stream, now: float) -> None:
        """Take a request up again where it stopped: this scheduler may not know it, or deltas were lost."""
        submit = msgspec.structs.replace(
            stream.submit,
            attempt=stream.attempt + 1,
            age_ms=(now - stream.arrival) * 1e3,
            delivered=tuple(pack_i32(choice.token_ids) for choice in stream.choices),
            ended=tuple(choice.index for choice in stream.choices if choice.finish is not FinishReason.NONE),
        )
        stream.resubmitted(submit)
        self.outgoing.append(submit)

    def _on_rejected(self, reply: Rejected, now: float) -> list[Stream]:
        stream = self._current(reply.request, reply.attempt)
        if stream is None:
            return []
        error = from_kind(
            reply.kind, reply.message, param=reply.param or None, retry_after=reply.retry_after or None
        )
        self._end(stream, now, error)
        return [stream]

    def _on_deltas(self, deltas: Deltas, now: float) -> list[Stream]:
        requests, attempts = unpack_i64(deltas.request).tolist(), unpack_i32(deltas.attempt).tolist()
        counts, tokens = unpack_i32(deltas.count).tolist(), unpack_i32(deltas.tokens).tolist()
        others = (
            unpack_i32(column).tolist()
            for column in (deltas.choice, deltas.start, deltas.finish, deltas.stop_token)
        )
        logprobs = split_logprobs(deltas.logprobs) if deltas.logprobs is not None else None
        faults = {fault.index: from_kind(fault.kind, fault.message) for fault in deltas.faults}
        changed: dict[int, Stream] = {}
        end = 0
        self._take_prompts(deltas.prompt_logprobs, now, changed)
        try:
            for start in deltas.starts:
                _on_start(self._current(requests[start.index], attempts[start.index]), start, now)
            rows = zip(requests, attempts, counts, *others, strict=True)
            for row, (number, attempt, count, choice, place, finish, stop_token) in enumerate(rows):
                first, end = end, end + count
                stream = self._streams.get(number)
                if stream is None or stream.attempt != attempt:
                    continue
                changed[number] = stream
                if row in faults:
                    self._end(stream, now, faults[row])
                    continue
                told = _asked(logprobs, first, end) if logprobs is not None else None
                try:
                    stopped = stream.add(choice, place, tokens[first:end], _FINISH[finish], stop_token, told)
                except RequestFailedError as error:
                    self.outgoing.append(Abort(number))
                    self._end(stream, now, error)
                    continue
                if stopped:
                    self.outgoing.append(Finish(number, choice, len(stream.choices[choice].token_ids)))
                if stream.ended:
                    self._end(stream, now)
        except (IndexError, ValueError) as error:
            raise ProtocolError(f"deltas whose columns do not fit together: {error}") from error
        return list(changed.values())

    def _take_prompts(self, parts: Sequence[PromptLogprobs], now: float, changed: dict[int, Stream]) -> None:
        for part in parts:
            stream = self._current(part.request, part.attempt)
            if stream is None:
                continue
            told = [entry for entry in split_logprobs(part.logprobs) if entry is not None]
            try:
                stream.add_prompt(part.start, told)
            except RequestFailedError as error:
                self.outgoing.append(Abort(part.request))
                self._end(stream, now, error)
                changed[part.request] = stream

    def _end(self, stream: Stream, now: float, error: OctavoError | None = None) -> None:
        """The request is over, as a whole."""
        if error is not None:
            stream.fail(error)
        stream.finished_at = now
        self._streams.pop(stream.number, None)


def _on_start(stream: Stream | None, start: Start, now: float) -> None:
    if stream is not None and stream.first_token_at is None:
        stream.first_token_at = now
        stream.num_cached = start.num_cached
        stream.queued_ms = start.queued_ms
        stream.prefill_ms = start.prefill_ms


def _asked(logprobs: list[TokenLogprobs | None], first: int, end: int) -> list[TokenLogprobs]:
    return [entry for entry in logprobs[first:end] if entry is not None]
