"""`AsyncLLMEngine`: generation as async generators, made for an application that has an event loop."""

import asyncio
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Self

from ...protocol.errors import EngineDeadError, InvalidRequestError, UsageError
from ...protocol.ids import new_request_name
from ...protocol.sampling import SamplingParams
from ..supervisor.engine import EngineProcesses, start_engine
from ..text import Tokenizer
from .args import EngineArgs
from .assemble import OutputBuilder
from .async_client import AsyncClient
from .outputs import RequestOutput
from .prompts import EncodedPrompt, Prompt, encode_prompt
from .resolve import resolve_model
from .stream import Stream
from .tokenizers import load_tokenizer

_LONG_TEXT = 8192  # characters; a longer prompt is tokenized on a thread
_POLL_SECONDS = 0.02


class AsyncLLMEngine:
    """An engine of its own processes, or a connection to a running server.

    It may be made before there is an event loop; it connects on the loop that uses it first, and on another
    one when that is closed.
    """

    def __init__(self, endpoint: str, tokenizer: Tokenizer | None, processes: EngineProcesses | None) -> None:
        self._endpoint = endpoint
        self._tokenizer = tokenizer
        self._processes = processes
        self._client: AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # the client's
        self._open: dict[str, Stream] = {}
        self._closed = False

    @classmethod
    def from_engine_args(cls, args: EngineArgs) -> Self:
        """Start an engine's processes; returns at once, requests wait until it is ready.

        Raises ModelError when the model cannot be found.
        """
        model = resolve_model(args)
        tokenizer = load_tokenizer(model.tokenizer_path)
        processes = start_engine(args, model)
        return cls(processes.endpoint, tokenizer, processes)

    @classmethod
    def connect(cls, endpoint: str, model: str) -> Self:
        """Attach to a running server's scheduler; `model` is what it serves, for the tokenizer."""
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
        params = sampling_params or SamplingParams()
        name = request_id or new_request_name()
        if name in self._open:
            raise InvalidRequestError(f"request_id {name!r} is in use", param="request_id")
        client = await self._ready_client()
        encoded = await self._encode(prompt)
        if name in self._open:
            raise InvalidRequestError(f"request_id {name!r} is in use", param="request_id")
        stream = client.submit(
            encoded.token_ids, params, name=name, priority=priority, cache_salt=encoded.cache_salt
        )
        self._open[name] = stream
        builder = OutputBuilder(stream, name, encoded.text, self._tokenizer)
        try:
            async for gained in client.updates(stream):
                output = builder.add(gained)
                if output is not None:
                    yield output
        finally:
            del self._open[name]
            if not stream.ended:
                client.abort(stream)

    async def abort(self, request_id: str) -> None:
        """End a request; its generator raises RequestAbortedError. Unknown ids are ignored."""
        stream = self._open.get(request_id)
        if stream is not None and self._client is not None:
            self._client.abort(stream)

    async def check_health(self) -> None:
        """Raises EngineDeadError when no generation will ever run again."""
        if self.errored:
            raise EngineDeadError(self._root_cause() or "the engine was shut down")

    @property
    def errored(self) -> bool:
        fatal = self._client is not None and self._client.core.fatal
        return self._closed or fatal or self._root_cause() is not None

    @property
    def is_running(self) -> bool:
        return not self.errored

    def get_tokenizer(self) -> Tokenizer | None:
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

    def _root_cause(self) -> str | None:
        return self._processes.poll() if self._processes is not None else None

    async def _ready_client(self) -> AsyncClient:
        if self._closed:
            raise EngineDeadError("the engine was shut down")
        if self._client is not None and self._loop is not asyncio.get_running_loop():
            if self._loop is not None and not self._loop.is_closed():
                raise UsageError("an AsyncLLMEngine serves one event loop, and another one is using it")
            self._client.close()
            self._client = None
        if self._client is None:
            self._client = AsyncClient(self._tokenizer, "async-engine", root_cause=self._root_cause)
            self._loop = asyncio.get_running_loop()
            self._client.connect(self._endpoint)
        while not self._client.core.ready:
            await self.check_health()
            await asyncio.sleep(_POLL_SECONDS)
        return self._client

    async def _encode(self, prompt: Prompt) -> EncodedPrompt:
        text = prompt.get("prompt") if isinstance(prompt, dict) else prompt
        if isinstance(text, str) and len(text) > _LONG_TEXT:
            return await asyncio.to_thread(encode_prompt, self._tokenizer, prompt)
        return encode_prompt(self._tokenizer, prompt)
