"""`LLMEngine`: requests are added, and each `step` returns those that changed."""

import weakref
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ...protocol.errors import EngineDeadError, InvalidRequestError
from ...protocol.sampling import SamplingParams
from ..supervisor.engine import EngineProcesses, start_engine
from ..text import Tokenizer
from .args import EngineArgs
from .assemble import OutputBuilder
from .outputs import RequestOutput
from .prompts import EncodedPrompt, Prompt, encode_prompt
from .resolve import ResolvedModel, resolve_model
from .seeds import seeds_from
from .sync_client import SyncClient
from .tokenizers import load_tokenizer

_LONGEST_WAIT = 3600.0


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A request that is not added yet."""

    request_id: str
    prompt: EncodedPrompt
    params: SamplingParams
    priority: int


class LLMEngine:
    """An engine of its own processes. The engine runs on whether or not `step` is called.

    The processes end with `shutdown`, with the last reference to the engine, or with the program, however
    that ends.
    """

    def __init__(self, args: EngineArgs) -> None:
        """Start the processes and wait until a generation could run.

        Raises ModelError when the model cannot be found, EngineDeadError with the root cause when a process
        could not start.
        """
        self.model: ResolvedModel = resolve_model(args)
        self.tokenizer: Tokenizer | None = load_tokenizer(self.model.tokenizer_path)
        processes: EngineProcesses = start_engine(args, self.model)
        self._client = SyncClient(
            self.tokenizer,
            processes.endpoint,
            processes.poll,
            recover=processes.recovers,
            draw_seed=seeds_from(args.seed),
        )
        self._end = weakref.finalize(self, _end, self._client, processes)
        self._open: dict[str, OutputBuilder] = {}
        self._by_number: dict[int, OutputBuilder] = {}
        self._changed: dict[int, OutputBuilder] = {}  # since they were last looked at
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
        encoded = encode_prompt(self.tokenizer, prompt)
        self.add_requests([NewRequest(request_id, encoded, params or SamplingParams(), priority)])

    def add_requests(self, requests: Sequence[NewRequest]) -> None:
        """Start several requests, or none when one of them is refused. Raises as `add_request`."""
        self._check_alive()
        for place, request in enumerate(requests):
            try:
                self._check(request)
            except InvalidRequestError as error:
                which = f"prompt {place}: " if len(requests) > 1 else ""
                raise type(error)(f"{which}{error.message}", param=error.param) from None
        added: list[str] = []
        try:
            for request in requests:
                self._add(request)
                added.append(request.request_id)
            self._client.flush()
        except BaseException:
            self.abort_request(added)
            raise

    def step(self) -> list[RequestOutput]:
        """Wait for the next tokens; returns the requests that changed, empty when none is open.

        A request that ended with an error of its own is returned finished: its choices have the finish_reason
        "error", "timeout" or "abort", and it has an `error`. Raises EngineDeadError when the engine is gone.
        """
        return self._step(self._open)

    def step_for(self, request_ids: Container[str]) -> list[RequestOutput]:
        """As `step` for some of the requests; what the others gain stays for a later call."""
        return self._step(request_ids)

    def abort_request(self, request_id: str | Iterable[str]) -> None:
        """End a request, or several; nothing more is returned for it. Unknown ids are ignored."""
        for name in [request_id] if isinstance(request_id, str) else list(request_id):
            builder = self._open.get(name)
            if builder is not None:
                self._forget(builder)
                if self._end.alive:
                    self._client.abort(builder.stream)

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
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _check_alive(self) -> None:
        if not self._end.alive:
            raise EngineDeadError("the engine was shut down")
        if (cause := self._client.death) is not None:
            raise EngineDeadError(cause)

    def _check(self, request: NewRequest) -> None:
        if request.request_id in self._open:
            raise InvalidRequestError(f"request_id {request.request_id!r} is in use", param="request_id")
        self._client.check(request.prompt.token_ids, request.params)

    def _add(self, request: NewRequest) -> None:
        prompt, name = request.prompt, request.request_id
        stream = self._client.submit(
            prompt.token_ids,
            request.params,
            name=name,
            priority=request.priority,
            cache_salt=prompt.cache_salt,
        )
        builder = OutputBuilder(stream, name, prompt.text, self.tokenizer)
        self._open[name] = self._by_number[stream.number] = builder

    def _step(self, wanted: Container[str]) -> list[RequestOutput]:
        while True:
            outputs = self._take(wanted)
            if outputs:
                return outputs
            self._check_alive()
            if not any(name in wanted for name in self._open):
                return []
            for stream in self._client.wait(_LONGEST_WAIT):
                if stream.number in self._by_number:
                    self._changed[stream.number] = self._by_number[stream.number]

    def _take(self, wanted: Container[str]) -> list[RequestOutput]:
        outputs = []
        for builder in [one for one in self._changed.values() if one.request_id in wanted]:
            stream = builder.stream
            del self._changed[stream.number]
            output = builder.take()
            if stream.ended:
                self._forget(builder)
            if isinstance(stream.error, EngineDeadError):
                self.abort_request(list(self._open))
                raise stream.error
            if output is not None:
                outputs.append(output)
        return outputs

    def _forget(self, builder: OutputBuilder) -> None:
        number = builder.stream.number
        del self._open[builder.request_id], self._by_number[number]
        self._changed.pop(number, None)


def _end(client: SyncClient, processes: EngineProcesses) -> None:
    client.close()
    processes.close()
