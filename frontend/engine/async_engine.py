"""`AsyncLLMEngine`: generation as async generators, made for an application that has an event loop."""

import asyncio
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ...protocol.errors import (
    EngineDeadError,
    InvalidRequestError,
    RequestAbortedError,
    RequestTimeoutError,
    UsageError,
)
from ...protocol.ids import new_request_name, new_seed
from ...protocol.sampling import SamplingParams
from ..supervisor.engine import EngineProcesses, start_engine
from ..text import Tokenizer
from .args import EngineArgs
from .assemble import OutputBuilder
from .async_client import AsyncClient
from .outputs import RequestOutput
from .prompts import EncodedPrompt, Prompt, encode_prompt
from .resolve import resolve_model
from .seeds import seeds_from
from .stream import Stream
from .tokenizers import load_tokenizer

_LONG = 8192  # characters or token ids; a longer prompt is encoded on a thread


@dataclass(slots=True)
class _Request:
    """What is open under a request id: nothing was sent as long as there is no stream."""

    stream: Stream | None = None
    aborted: bool = False


class AsyncLLMEngine:
    """An engine of its own processes, or a connection to a running server.

    It may be made before there is an event loop; it connects on the loop that uses it first, and on another
    one once that is closed. The processes end with `shutdown`, with the last reference to the engine, or with
    the program, however that ends.
    """

    def __init__(
        self,
        endpoint: str,
        tokenizer: Tokenizer | None,
        processes: EngineProcesses | None,
        *,
        draw_seed: Callable[[], int] = new_seed,
    ) -> None:
        self._endpoint = endpoint
        self._tokenizer = tokenizer
        self._processes = processes
        # No method of this object, which the client would keep alive.
        self._poll = processes.poll if processes is not None else _lives
        self._draw_seed = draw_seed
        self._client: AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # that of the client
        self._open: dict[str, _Request] = {}
        self._closed = False
        if processes is not None:
            weakref.finalize(self, processes.close)

    @classmethod
    def from_engine_args(cls, args: EngineArgs) -> Self:
        """Start an engine's processes; returns at once, requests wait until it is ready.

        Raises ModelError when the model cannot be found.
        """
        model = resolve_model(args)
        tokenizer = load_tokenizer(model.tokenizer_path)
        processes = start_engine(args, model)
        return cls(processes.endpoint, tokenizer, processes, draw_seed=seeds_from(args.seed))

    @classmethod
    def connect(cls, endpoint: str, model: str | None = None) -> Self:
        """Attach to a running server's scheduler, at its `ipc://` or `tcp://` address.

        `model` is what the server serves, for the tokenizer: without it prompts are token ids, and outputs
        have no text. Raises ModelError when it cannot be found.
        """
        if model is None:
            return cls(endpoint, None, None)
        path = resolve_model(EngineArgs(model=model, load_format="dummy")).tokenizer_path
        return cls(endpoint, load_tokenizer(path), None)

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int = 0,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Outputs of one request as they come, cumulative unless `output_kind` or `stream` says otherwise.

        Leaving the generator early ends the request. Raises InvalidRequestError (a ValueError) for bad input
        and for a request_id that is in use, RequestTimeoutError, QueueFullError, EngineDeadError.
        """
        arrival = time.monotonic()
        params = sampling_params or SamplingParams()
        name = request_id or new_request_name()
        if name in self._open:
            raise InvalidRequestError(f"request_id {name!r} is in use", param="request_id")
        request = self._open[name] = _Request()
        try:
            client, encoded = await self._prepare(prompt, params)
            if request.aborted:
                raise RequestAbortedError(f"request {name} was aborted")
            stream = request.stream = client.submit(
                encoded.token_ids,
                params,
                arrival=arrival,
                name=name,
                priority=priority,
                cache_salt=encoded.cache_salt,
            )
            builder = OutputBuilder(stream, name, encoded.text, self._tokenizer)
            async for gained in client.updates(stream):
                output = builder.add(gained)
                if output is not None:
                    yield output
        finally:
            del self._open[name]
            if request.stream is not None and not request.stream.ended:
                client.abort(request.stream)

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """End a request, or several; its generator raises RequestAbortedError. Unknown ids are ignored."""
        for name in [request_id] if isinstance(request_id, str) else request_id:
            request = self._open.get(name)
            if request is None:
                continue
            request.aborted = True
            if request.stream is not None and self._client is not None:
                self._client.abort(request.stream)

    async def check_health(self) -> None:
        """Raises EngineDeadError when no generation will ever run again."""
        if (cause := self._death()) is not None:
            raise EngineDeadError(cause)

    @property
    def errored(self) -> bool:
        """Whether no generation will ever run again."""
        return self._death() is not None

    @property
    def is_running(self) -> bool:
        """Whether generations can run, now or once the engine is ready."""
        return not self.errored

    async def get_tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer, None for a model without one."""
        return self._tokenizer

    def shutdown(self) -> None:
        """End open requests and the engine's processes. May be called twice."""
        self._closed = True
        if self._client is not None:
            self._client.close()
        if self._processes is not None:
            self._processes.close()

    async def __aenter__(self) -> Self:
        await self._ready_client()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _death(self) -> str | None:
        """Why no generation will ever run again."""
        if self._closed:
            return "the engine was shut down"
        if self._client is not None and self._client.core.fatal:
            return self._client.core.reason
        return self._poll()

    async def _prepare(self, prompt: Prompt, params: SamplingParams) -> tuple[AsyncClient, EncodedPrompt]:
        """A client that is ready, and the prompt's ids; the time that takes is the request's."""
        try:
            async with asyncio.timeout(params.timeout):
                encoded = await self._encode(prompt)
                client = await self._ready_client()
                await client.compile_grammar(params)
                return client, encoded
        except TimeoutError:
            raise RequestTimeoutError(
                f"the request's timeout of {params.timeout:g} s passed before it could start"
            ) from None

    async def _ready_client(self) -> AsyncClient:
        await self.check_health()
        loop = asyncio.get_running_loop()
        if self._client is None or (self._loop is not loop and self._loop_is_closed()):
            self._connect(loop)
        if self._loop is not loop or self._client is None:
            raise UsageError("an AsyncLLMEngine serves one event loop, and another one is using it")
        await self._client.wait_ready(must_be_reachable=self._processes is None)
        return self._client

    def _loop_is_closed(self) -> bool:
        return self._loop is not None and self._loop.is_closed()

    def _connect(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._client is not None:
            self._client.close()
        client = AsyncClient(
            self._tokenizer,
            "async-engine",
            recover=self._processes is not None and self._processes.recovers,
            root_cause=self._poll,
            draw_seed=self._draw_seed,
        )
        client.connect(self._endpoint)
        self._client, self._loop = client, loop

    async def _encode(self, prompt: Prompt) -> EncodedPrompt:
        given = prompt.get("prompt") if isinstance(prompt, dict) else prompt
        if isinstance(given, str | list) and len(given) > _LONG:
            return await asyncio.to_thread(encode_prompt, self._tokenizer, prompt)
        return encode_prompt(self._tokenizer, prompt)


def _lives() -> None:
    """The root cause of the death of processes that nobody here can watch."""
