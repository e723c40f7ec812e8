"""The scheduler's end of a client's wire, which answers what a test tells it to."""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import zmq

from octavo.protocol import channels, codec
from octavo.protocol.base import Message
from octavo.protocol.columns import pack_f32, pack_i32, pack_i64, unpack_i32
from octavo.protocol.ids import FinishReason, new_incarnation
from octavo.protocol.lifecycle import ModelLimits
from octavo.protocol.replies import (
    Accepted,
    Deltas,
    EngineStats,
    Fault,
    LogprobColumns,
    PromptLogprobs,
    Rejected,
    Snapshot,
    Start,
    Status,
    Story,
    StoryEntry,
    Welcome,
)
from octavo.protocol.requests import Abort, Alive, ClientHello, ClientMessage, Finish, Query, Submit

M = TypeVar("M", bound=Message)

Script = Callable[[Submit, int], Sequence[int]]  # output token ids of a choice; repeated when it never ends
_IDLE_MS = 20
_PATIENCE = 10.0


@dataclass
class _Choice:
    client: bytes
    submit: Submit
    index: int
    script: Sequence[int]
    sent: int = 0


@dataclass
class _Entry:
    """A row of the columns of a `Deltas`."""

    choice: _Choice
    token: int | None
    start: int
    finish: FinishReason = FinishReason.NONE
    stop_token: int = -1
    fault: tuple[str, str] | None = None


class ScriptedScheduler:
    """One token of every open choice a step, on a thread of its own.

    Attributes:
        script: what a choice says. refuse: the answer to a `Submit` instead of `Accepted`. fail_after: number
        of tokens after which a choice fails, and the kind and message of its fault. ready: whether a
        generation could run. step_seconds: time between steps. go: steps are taken while it is set. accept:
        submits are answered while it is set. seen: every message of the clients, in order.
    """

    def __init__(self, endpoint: str, limits: ModelLimits, script: Script, *, ready: bool = True) -> None:
        self.limits = limits
        self.script = script
        self._told_ready = ready
        self.go, self.accept = threading.Event(), threading.Event()
        self.reset()
        self.ready = ready
        self._open: dict[tuple[bytes, int], list[_Choice]] = {}
        self._waiting: list[tuple[bytes, Submit]] = []
        self._clients: set[bytes] = set()
        self._ended = threading.Event()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = channels.bind_router(self._context, endpoint)
        self._decoder = codec.client_decoder()
        self._incarnation = new_incarnation()
        self._thread = threading.Thread(target=self._run, name="scripted-scheduler", daemon=True)
        self._thread.start()

    def reset(self) -> None:
        """Forget everything but the script."""
        self.refuse: Callable[[Submit], Rejected | None] = lambda submit: None
        self.fail_after: Callable[[Submit], tuple[int, str, str] | None] = lambda submit: None
        self.ready = True
        self.step_seconds = 0.0
        self.seen: queue.Queue[ClientMessage] = queue.Queue()
        self.go.set()
        self.accept.set()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._context.destroy(0)

    def expect(self, kind: type[M]) -> M:
        """The next message of this kind; others are passed over."""
        while True:
            message = self.seen.get(timeout=_PATIENCE)
            if isinstance(message, kind):
                return message

    @property
    def num_clients(self) -> int:
        """Clients that introduced themselves."""
        return len(self._clients)

    @property
    def num_open(self) -> int:
        """Requests that run."""
        return len(self._open)

    def _run(self) -> None:
        while not self._ended.is_set():
            busy = bool(self._open) and self.go.is_set()
            timeout = self.step_seconds * 1e3 if busy else _IDLE_MS
            if self._socket.poll(timeout):
                client, frame = self._socket.recv_multipart()
                self._on_message(client, self._decoder.decode(frame))
                continue
            self._tell_status()
            while self._waiting and self.accept.is_set():
                self._begin(*self._waiting.pop(0))
            if busy:
                self._step()

    def _on_message(self, client: bytes, message: ClientMessage) -> None:
        if isinstance(message, ClientHello):
            self._clients.add(client)
            reason = "" if self.ready else "loading"
            self._send(client, Welcome(self._incarnation, self.limits, self.ready, reason))
        elif isinstance(message, Submit):
            self._waiting.append((client, message))
            if self.accept.is_set():
                self._begin(*self._waiting.pop())
        elif isinstance(message, Abort):
            self._open.pop((client, message.request), None)
        elif isinstance(message, Finish):
            self._drop(client, message.request, message.choice)
        elif isinstance(message, Alive):
            self._send(client, Status(self._incarnation, self.ready, "" if self.ready else "loading"))
        elif isinstance(message, Query) and not message.name:
            stats = EngineStats(
                **{**dict.fromkeys(EngineStats.__struct_fields__, 0), "running": self.num_open}
            )
            self._send(client, Snapshot(message.token, stats))
        elif isinstance(message, Query):
            entries = (StoryEntry(1.5, "queued", "2 ahead"),) if message.name.startswith("known") else ()
            self._send(client, Story(message.token, message.name, entries))
        self.seen.put(message)

    def _begin(self, client: bytes, submit: Submit) -> None:
        if (rejected := self.refuse(submit)) is not None:
            self._send(client, rejected)
            return
        choices = [
            _Choice(client, submit, index, self.script(submit, index)) for index in range(submit.params.n)
        ]
        self._open[client, submit.request] = choices
        self._send(client, Accepted(submit.request, submit.attempt, 0, -1.0))

    def _step(self) -> None:
        for client in {key[0] for key in self._open}:
            entries = [
                self._advance(choice)
                for key, choices in list(self._open.items())
                for choice in list(choices)
                if key[0] == client
            ]
            if entries:
                self._send(client, _deltas(entries))

    def _advance(self, choice: _Choice) -> _Entry:
        params, submit = choice.submit.params, choice.submit
        failure = self.fail_after(submit)
        if failure is not None and choice.sent == failure[0]:
            self._drop(choice.client, submit.request, choice.index)
            return _Entry(choice, None, choice.sent, FinishReason.ERROR, fault=failure[1:])
        token = choice.script[choice.sent % len(choice.script)]
        entry = _Entry(choice, token, choice.sent)
        choice.sent += 1
        if choice.sent > params.min_tokens:
            if token in self.limits.eos_token_ids and not params.ignore_eos:
                entry.finish = FinishReason.STOP
            elif token in (params.stop_token_ids or ()):
                entry.finish, entry.stop_token = FinishReason.STOP, token
        room = self.limits.max_model_len - len(submit.prompt) // 4
        if entry.finish is FinishReason.NONE and choice.sent >= min(params.max_tokens or room, room):
            entry.finish = FinishReason.LENGTH
        if entry.finish is not FinishReason.NONE:
            self._drop(choice.client, submit.request, choice.index)
        return entry

    def _drop(self, client: bytes, request: int, index: int) -> None:
        left = [choice for choice in self._open.pop((client, request), []) if choice.index != index]
        if left:
            self._open[client, request] = left

    def _tell_status(self) -> None:
        if self._told_ready != self.ready:
            self._told_ready = self.ready
            for client in self._clients:
                self._send(client, Status(self._incarnation, self.ready, "" if self.ready else "restarting"))

    def _send(self, client: bytes, message: Message) -> None:
        channels.send_to(self._socket, client, codec.encode(message))


def _deltas(entries: Sequence[_Entry]) -> Deltas:
    submits = [entry.choice.submit for entry in entries]
    tokens = [[] if entry.token is None else [entry.token] for entry in entries]
    return Deltas(
        request=pack_i64(submit.request for submit in submits),
        attempt=pack_i32(submit.attempt for submit in submits),
        choice=pack_i32(entry.choice.index for entry in entries),
        start=pack_i32(entry.start for entry in entries),
        count=pack_i32(len(part) for part in tokens),
        finish=pack_i32(entry.finish for entry in entries),
        stop_token=pack_i32(entry.stop_token for entry in entries),
        tokens=pack_i32(token for part in tokens for token in part),
        starts=tuple(
            Start(index, num_cached=0, queued_ms=2.0, prefill_ms=3.0)
            for index, entry in enumerate(entries)
            if entry.start == 0 and entry.choice.index == 0
        ),
        faults=tuple(Fault(index, *entry.fault) for index, entry in enumerate(entries) if entry.fault),
        logprobs=_logprobs(entries),
        prompt_logprobs=tuple(
            _prompt_logprobs(entry.choice.submit)
            for entry in entries
            if entry.start == 0 and entry.choice.submit.params.prompt_logprobs is not None
        ),
    )


def _prompt_logprobs(submit: Submit) -> PromptLogprobs:
    """Made up: the token at position p has -p, alternative number i is token id 40 + i with -1 - i."""
    asked = submit.params.prompt_logprobs or 0
    tokens, values = [], []
    ids = unpack_i32(submit.prompt).tolist()[1:]
    for position, token in enumerate(ids, start=1):
        tokens += [token, *range(40, 40 + asked)]
        values += [-float(position), *(-1.0 - place for place in range(asked))]
    counts, ranks = pack_i32([1 + asked] * len(ids)), pack_i32([7] * len(ids))
    columns = LogprobColumns(counts, pack_i32(tokens), pack_f32(values), ranks)
    return PromptLogprobs(submit.request, submit.attempt, 1, columns)


def _logprobs(entries: Sequence[_Entry]) -> LogprobColumns | None:
    """Made up: the chosen token has -0.5, alternative number i is token id i with -1 - i, the last -inf."""
    counts, tokens, values = [], [], []
    for entry in entries:
        asked = entry.choice.submit.params.logprobs
        if entry.token is None:
            continue
        counts.append(0 if asked is None else 1 + asked)
        if asked is not None:
            tokens += [entry.token, *range(40, 40 + asked)]
            values += [-0.5, *(-1.0 - place for place in range(asked))]
            if asked:
                values[-1] = float("-inf")
    if not any(counts):
        return None
    ranks = [1 if count else 0 for count in counts]
    return LogprobColumns(pack_i32(counts), pack_i32(tokens), pack_f32(values), pack_i32(ranks))
