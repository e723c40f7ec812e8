"""`LLMEngine`: requests are added, and each `step` returns those that changed."""

import time
from types import TracebackType
from typing import Self

from ...protocol.errors import EngineDeadError, InvalidRequestError
from ...protocol.sampling import SamplingParams
from ..supervisor.engine import EngineProcesses, start_engine
from ..text import Tokenizer
from .args import EngineArgs
from .assemble import OutputBuilder
from .outputs import RequestOutput
from .prompts import Prompt, encode_prompt
from .resolve import ResolvedModel, resolve_model
from .stream import Stream
from .sync_client import SyncClient
from .tokenizers import load_tokenizer

_LONGEST_WAIT = 3600.0


class LLMEngine:
    """An engine of its own processes. The engine runs on whether or not `step` is called."""

    def __init__(self, args: EngineArgs) -> None:
        """Start the processes and wait until a generation could run.

        Raises ModelError when the model cannot be found, EngineDeadError with the root cause when a process
        could not start.
        """
        self.model: ResolvedModel = resolve_model(args)
        self.tokenizer: Tokenizer | None = load_tokenizer(self.model.tokenizer_path)
        self._processes: EngineProcesses = start_engine(args, self.model)
        self._client = SyncClient(self.tokenizer, self._processes.endpoint, self._processes.poll)
        self._builders: dict[int, OutputBuilder] = {}
        self._open: dict[str, Stream] = {}
        self._closed = False
        try:
            self._client.wait_ready()
        except BaseException:
            self.shutdown()
            raise

    @classmethod
    def from_engine_args(cls, args: EngineArgs) -> Self:
        """As the constructor."""
        return cls(args)

    def add_request(
        self, request_id: str, prompt: Prompt, params: SamplingParams | None = None, priority: int = 0
    ) -> None:
        """Start a request. Raises InvalidRequestError for bad input and for an id that is in use."""
        if self._closed:
            raise EngineDeadError("the engine was shut down")
        if request_id in self._open:
            raise InvalidRequestError(f"request_id {request_id!r} is in use", param="request_id")
        encoded = encode_prompt(self.tokenizer, prompt)
        stream = self._client.core.submit(
            encoded.token_ids,
            params or SamplingParams(),
            time.monotonic(),
            name=request_id,
            priority=priority,
            cache_salt=encoded.cache_salt,
        )
        self._client.flush()
        self._open[request_id] = stream
        self._builders[stream.number] = OutputBuilder(stream, request_id, encoded.text, self.tokenizer)

    def step(self) -> list[RequestOutput]:
        """Wait for the next tokens; returns the requests that changed, empty when none is open.

        A request that ended with an error of its own is returned finished, with finish_reason "error",
        "timeout" or "abort" and the message as stop_reason. Raises EngineDeadError when the engine is gone.
        """
        if self._closed or self._client.core.fatal:
            raise EngineDeadError("the engine was shut down" if self._closed else self._client.core.reason)
        while self._open:
            outputs = [
                output for stream in self._client.wait(_LONGEST_WAIT) for output in self._outputs(stream)
            ]
            if outputs:
                return outputs
        return []

    def abort_request(self, request_id: str) -> None:
        """End a request; nothing more is returned for it. Unknown ids are ignored."""
        stream = self._open.pop(request_id, None)
        if stream is not None:
            self._builders.pop(stream.number, None)
            self._client.core.abort(stream)
            if not self._closed:
                self._client.flush()

    def has_unfinished_requests(self) -> bool:
        """Whether a request is open."""
        return bool(self._open)

    def get_num_unfinished_requests(self) -> int:
        """How many requests are open."""
        return len(self._open)

    def get_tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer, None for a model without one."""
        return self.tokenizer

    def shutdown(self) -> None:
        """End the engine's processes. May be called twice."""
        if not self._closed:
            self._closed = True
            self._client.close()
            self._processes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _outputs(self, stream: Stream) -> list[RequestOutput]:
        builder = self._builders.get(stream.number)
        if builder is None or builder.waits:
            return []
        updates = stream.take()
        if stream.ended:
            del self._builders[stream.number], self._open[builder.request_id]
        if stream.error is None:
            output = builder.add(updates)
            return [] if output is None else [output]
        if isinstance(stream.error, EngineDeadError):
            self._forget_all()
            raise stream.error
        return [builder.failed(updates, stream.error)]

    def _forget_all(self) -> None:
        """No request is left to wait for: the engine is gone."""
        for stream in self._open.values():
            self._client.core.abort(stream)
        self._open.clear()
        self._builders.clear()
