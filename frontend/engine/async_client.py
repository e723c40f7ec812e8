"""The client for an event loop: one receive a step, one wake-up for each stream that changed."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence

from ...protocol.errors import EngineDeadError, EngineUnavailableError
from ...protocol.ids import new_seed
from ...protocol.replies import EngineStats, Snapshot, Story, StoryEntry
from ...protocol.sampling import SamplingParams
from ..text import Tokenizer
from .client_core import ClientCore
from .link import Link
from .stream import ChoiceUpdate, Stream
from .structured import GrammarCompiler

_BEAT_SECONDS = 1.0
_QUERY_SECONDS = 5.0
_SLICE_SECONDS = 0.005  # the loop does nothing else for so long at most
# Messages in a row that were already there when they were read. A client that is further behind takes many at
# once, so that what its streams gained becomes one: that costs less than a turn for each token.
_BEHIND = 16


class AsyncClient:
    """A connection to a scheduler. Everything runs on the event loop it was connected on."""

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        name: str = "client",
        *,
        recover: bool = False,
        root_cause: Callable[[], str | None] = lambda: None,
        draw_seed: Callable[[], int] = new_seed,
        behind: int = _BEHIND,
    ) -> None:
        """`root_cause` is asked each second why the engine died; None as long as it lives.

        `recover` and `draw_seed` are those of `ClientCore`. A client that is more than `behind` messages late
        joins what streams gained by several.
        """
        self.core = ClientCore(tokenizer, name, recover=recover, draw_seed=draw_seed)
        self._root_cause = root_cause
        self._link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._waiters: dict[int, list[asyncio.Future[None]]] = {}  # by stream number
        self._for_ready: list[asyncio.Future[None]] = []
        self._queries: dict[int, asyncio.Future[None]] = {}
        self._tokens = itertools.count(1)
        self._grammars = GrammarCompiler()
        self._pumping = False  # the loop has been told to pump
        self._most_behind = behind
        self._behind = 0  # messages in a row that were there when they were read

    def connect(self, endpoint: str) -> None:
        """Start talking to the scheduler at `endpoint`; returns at once. On a running event loop."""
        self._loop = asyncio.get_running_loop()
        self._link = Link(self.core, endpoint)
        self._loop.add_reader(self._link.socket.fileno(), self._pump)
        self._loop.add_reader(self._link.monitor.fileno(), self._pump)
        self._beat = self._loop.call_later(_BEAT_SECONDS, self._on_beat)
        self._pump()

    @property
    def reachable(self) -> bool:
        """False once no scheduler has been met for 5 s."""
        return self._link is not None and self._link.reachable

    async def wait_ready(self, timeout: float | None = None, *, must_be_reachable: bool = False) -> None:
        """Wait until a generation could run.

        Raises EngineDeadError when it never will, EngineUnavailableError after `timeout` seconds, or, with
        `must_be_reachable`, when there is no scheduler at all.
        """
        try:
            async with asyncio.timeout(timeout):
                while not self.core.ready:
                    if self.core.fatal:
                        raise EngineDeadError(self.core.reason)
                    if must_be_reachable and not self.reachable:
                        raise EngineUnavailableError(self.core.reason)
                    waiter = self._running_loop().create_future()
                    self._for_ready.append(waiter)
                    await waiter
        except TimeoutError:
            raise EngineUnavailableError(f"the engine is not ready: {self.core.reason}") from None

    async def compile_grammar(self, params: SamplingParams) -> None:
        """Compile the grammar that the parameters ask for, if any, while the event loop goes on.

        To be awaited before `submit`, which takes it from there. Raises InvalidRequestError for one that
        cannot be compiled.
        """
        await self._grammars.check(params)

    def submit(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        arrival: float | None = None,
        name: str | None = None,
        priority: int = 0,
        user: str = "",
        cache_salt: str = "",
    ) -> Stream:
        """Start a request; arguments and exceptions are those of `ClientCore.submit`.

        `updates(stream)` says what comes of it.
        """
        stream = self.core.submit(
            prompt_ids,
            params,
            time.monotonic(),
            arrival=arrival,
            name=name,
            priority=priority,
            user=user,
            cache_salt=cache_salt,
        )
        self._pump_soon()
        return stream

    def abort(self, stream: Stream) -> None:
        """End a request that nobody wants any more."""
        self.core.abort(stream)
        self._pump_soon()
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
        """Disconnect. Open streams fail, for this reason.

        May be called twice, and after the event loop was closed.
        """
        self._grammars.close()
        failed = self.core.disconnected(reason, fatal=True)
        link, self._link = self._link, None
        if link is None or self._loop is None:
            return
        if not self._loop.is_closed():
            self._wake(failed)
            self._tell_ready()
            if self._beat is not None:
                self._beat.cancel()
            self._loop.remove_reader(link.socket.fileno())
            self._loop.remove_reader(link.monitor.fileno())
        link.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise EngineUnavailableError("the client is not connected")
        return self._loop

    async def _ask(self, name: str) -> Snapshot | Story:
        token = next(self._tokens)
        waiter = self._queries[token] = self._running_loop().create_future()
        self.core.query(token, name)
        self._pump_soon()
        try:
            await asyncio.wait_for(waiter, _QUERY_SECONDS)
        except TimeoutError:
            raise EngineUnavailableError("the scheduler does not answer") from None
        finally:
            del self._queries[token]
        return self.core.answers.pop(token)

    async def _changed(self, stream: Stream) -> None:
        # A future for each who waits: one that is cancelled concerns nobody else.
        waiter = self._running_loop().create_future()
        self._waiters.setdefault(stream.number, []).append(waiter)
        await waiter

    def _wake(self, streams: Sequence[Stream]) -> None:
        waiters = self._waiters
        for stream in streams:
            if stream.on_change is not None:
                stream.on_change()
            elif stream.number in waiters:
                _release(waiters.pop(stream.number))

    def _tell_ready(self) -> None:
        if self._for_ready and (self.core.ready or self.core.fatal or not self.reachable):
            waiting, self._for_ready = self._for_ready, []
            _release(waiting)

    def _pump(self) -> None:
        if self._link is None:
            return
        until = time.monotonic() + _SLICE_SECONDS
        while True:
            changed = self._link.pump() if self._behind > self._most_behind else self._link.pump(1)
            self._wake(changed)
            if self._link is None or not self._link.more:
                self._behind = 0
                break
            self._behind += 1
            if time.monotonic() > until:
                self._pump_soon()
                break
        self._tell_ready()
        if self.core.answers:
            self._tell_answers()

    def _tell_answers(self) -> None:
        answers = self.core.answers
        for token in list(answers):
            if token in self._queries:
                _release([self._queries[token]])
            else:
                del answers[token]  # it came too late

    def _pump_soon(self) -> None:
        # Sends of one turn of the loop leave together.
        if not self._pumping and self._loop is not None:
            self._pumping = True
            self._loop.call_soon(self._pump_now)

    def _pump_now(self) -> None:
        self._pumping = False
        self._pump()

    def _on_beat(self) -> None:
        if self._link is None or self._loop is None:
            return
        self._wake(self._link.beat(self._root_cause()))
        self._beat = self._loop.call_later(_BEAT_SECONDS, self._on_beat)
        self._pump()


def _release(waiters: Sequence["asyncio.Future[None]"]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
