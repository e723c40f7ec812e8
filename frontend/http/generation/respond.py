"""The answer to a request for text: streamed, or folded into one body."""

import logging
from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ....protocol.errors import OctavoError
from ..connection import Wire, close_after, cut
from .chunks import Chunk, Fold
from .disconnect import watch_client
from .format import Format
from .run import Generation

_BODY = "http.response.body"
_log = logging.getLogger(__name__)


class GenerationResponse(Response):
    """Runs a generation and sends its chunks in a format.

    Until the headers leave, which is when all prompts are in the queue, a failure is raised and becomes a
    plain status.
    """

    def __init__(self, generation: Generation, form: Format, name: str, *, stream: bool) -> None:
        """`name` is what logs call the request."""
        super().__init__(media_type=form.media_type if stream else "application/json")
        self._generation = generation
        self._format = form
        self._name = name
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with watch_client(receive, self._generation.abort):
            await self._generation.start()
            if self._stream:
                await self._send_stream(scope, send)
            else:
                await self._send_whole(scope, receive, send)

    async def _send_whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        fold = Fold(self._generation.num_choices)
        await self._generation.run(fold)
        if (num_top := self._format.prompt_logprobs) is not None:
            for choice in fold.choices:
                choice.prompt_logprobs = self._generation.prompt_logprobs(choice.index, num_top)
        body = self._format.whole(fold.choices, self._generation.usage())
        await Response(body, media_type=self.media_type)(scope, receive, send)

    async def _send_stream(self, scope: Scope, send: Send) -> None:
        form, generation = self._format, self._generation
        headers = [(b"content-type", form.media_type.encode()), *_STREAM_HEADERS]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        wire = Wire(scope)
        if opening := form.opening():
            wire.write(opening)
        try:
            await generation.run(_Frames(wire, form, generation))
        except Exception as error:
            await self._send_failure(scope, send, error)
            return
        await _send_end(send, form.closing(generation.usage()))

    async def _send_failure(self, scope: Scope, send: Send, error: Exception) -> None:
        if isinstance(error, OctavoError):
            _log.info("%s: the stream ends with %s: %s", self._name, error.kind, error.message)
        else:
            _log.error("%s: the stream ends with an error", self._name, exc_info=error)
        if (ending := self._format.failure(error)) is None:
            cut(scope)
            return
        close_after(scope)
        await _send_end(send, ending)


_STREAM_HEADERS: Sequence[tuple[bytes, bytes]] = (
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies such as nginx pass each event on at once
)


class _Frames:
    """Writes chunks as frames."""

    def __init__(self, wire: Wire, form: Format, generation: Generation) -> None:
        self._wire = wire
        self._form = form
        self._generation = generation
        self.drain = wire.drain

    @property
    def paused(self) -> bool:
        return self._wire.paused

    def take(self, chunks: Sequence[Chunk]) -> None:
        form = self._form
        usage = self._generation.usage() if form.counts_every_chunk else None
        if frames := b"".join([form.chunk(chunk, usage) for chunk in chunks]):
            self._wire.write(frames)


async def _send_end(send: Send, part: bytes) -> None:
    await send({"type": _BODY, "body": part, "more_body": False})
