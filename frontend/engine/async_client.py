"""The client for an event loop: one receive a step, one wake-up for each stream that changed."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence

from ...protocol.errors import EngineUnavailableError
from ...protocol.replies import EngineStats, Snapshot, Story, StoryEntry
from ...protocol.sampling import SamplingParams
from ..text import Tokenizer
from .client_core import ClientCore
from .link import Link
from .stream import ChoiceUpdate, Stream

_BEAT_SECONDS = 1.0
_QUERY_SECONDS = 5.0


class AsyncClient:
    """A connection to a scheduler. Everything runs on the event loop it was connected on."""

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        name: str = "client",
        *,
        recover: bool = False,
        root_cause: Callable[[], str | None] | None = None,
    ) -> None:
        """`root_cause` is asked each second why the engine died; None as long as it lives."""
        self._root_cause = root_cause
        self.core = ClientCore(tokenizer, name, recover=recover)
        self._link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._waiters: dict[int, list[asyncio.Future[None]]] = {}  # by stream number
        self._queries: dict[int, asyncio.Future[None]] = {}
        self._tokens = itertools.count(1)
        self._flushing = False

    def connect(self, endpoint: str) -> None:
        """Start talking to the scheduler at `endpoint`; returns at once. On a running event loop."""
        self._loop = asyncio.get_running_loop()
        self._link = Link(self.core, endpoint)
        self._loop.add_reader(self._link.socket.fileno(), self._pump)
        self._loop.add_reader(self._link.monitor.fileno(), self._pump)
        self._beat = self._loop.call_later(_BEAT_SECONDS, self._on_beat)
        self._pump()

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until a generation could run. Raises EngineUnavailableError after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.core.ready:
            if self.core.fatal or (deadline is not None and time.monotonic() > deadline):
                raise EngineUnavailableError(f"the engine is not ready: {self.core.reason}")
            await asyncio.sleep(0.02)

    def submit(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        name: str | None = None,
        priority: int = 0,
        user: str = "",
        cache_salt: str = "",
    ) -> Stream:
        """Start a request; raises as `ClientCore.submit`. `updates(stream)` says what comes of it."""
        stream = self.core.submit(
            prompt_ids,
            params,
            time.monotonic(),
            name=name,
            priority=priority,
            user=user,
            cache_salt=cache_salt,
        )
        self._flush_soon()
        return stream

    def abort(self, stream: Stream) -> None:
        """End a request that nobody wants any more."""
        self.core.abort(stream)
        self._flush_soon()
        self._wake([stream])

    async def accepted(self, stream: Stream) -> None:
        """Wait until the scheduler has the request. Raises why it was refused."""
        while not (stream.accepted or stream.ended):
            await self._changed(stream)
        if stream.error is not None:
            raise stream.error

    async def updates(self, stream: Stream) -> AsyncIterator[list[ChoiceUpdate]]:
        """What the choices gained, as it comes; what a slow consumer missed comes as one.

        Raises the request's error after what was delivered before it. Leaving the iterator early does not end
        the request: `abort` does.
        """
        while True:
            ended = stream.ended
            gained = stream.take()
            if gained:
                yield gained
            elif ended:
                if stream.error is not None:
                    raise stream.error
                return
            else:
                await self._changed(stream)

    async def stats(self) -> EngineStats:
        """The scheduler's gauges. Raises EngineUnavailableError when it does not answer."""
        answer = await self._ask("")
        assert isinstance(answer, Snapshot)
        return answer.stats

    async def story(self, name: str) -> tuple[StoryEntry, ...]:
        """What happened to a request, empty when it is unknown."""
        answer = await self._ask(name)
        assert isinstance(answer, Story)
        return answer.entries

    def close(self, reason: str = "the client was closed") -> None:
        """Disconnect. Open streams fail, for this reason."""
        self._wake(self.core.disconnected(reason, fatal=True))
        if self._link is None or self._loop is None:
            return
        if self._beat is not None:
            self._beat.cancel()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._link.socket.fileno())
            self._loop.remove_reader(self._link.monitor.fileno())
        self._link.close()
        self._link = None

    async def _ask(self, name: str) -> Snapshot | Story:
        if self._loop is None:
            raise EngineUnavailableError("the client is not connected")
        token = next(self._tokens)
        waiter = self._queries[token] = self._loop.create_future()
        self.core.query(token, name)
        self._flush_soon()
        try:
            await asyncio.wait_for(waiter, _QUERY_SECONDS)
        except TimeoutError:
            raise EngineUnavailableError("the scheduler does not answer") from None
        finally:
            del self._queries[token]
        return self.core.answers.pop(token)

    async def _changed(self, stream: Stream) -> None:
        if self._loop is None:
            raise EngineUnavailableError("the client is not connected")
        # A future for each who waits: one that is cancelled concerns nobody else.
        waiter = self._loop.create_future()
        self._waiters.setdefault(stream.number, []).append(waiter)
        await waiter

    def _wake(self, streams: Sequence[Stream]) -> None:
        for stream in streams:
            for waiter in self._waiters.pop(stream.number, ()):
                if not waiter.done():
                    waiter.set_result(None)

    def _pump(self) -> None:
        if self._link is None:
            return
        self._wake(self._link.pump())
        for token in self.core.answers.keys() & self._queries.keys():
            if not self._queries[token].done():
                self._queries[token].set_result(None)

    def _flush_soon(self) -> None:
        # Sends of one turn of the loop leave together. ZeroMQ's descriptor is edge-triggered: a send may use
        # up the edge of a message that arrived, so reading follows every send.
        if not self._flushing and self._loop is not None:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._pump()

    def _on_beat(self) -> None:
        if self._link is None or self._loop is None:
            return
        self._wake(self._link.beat(self._root_cause() if self._root_cause is not None else None))
        self._beat = self._loop.call_later(_BEAT_SECONDS, self._on_beat)
        self._pump()
