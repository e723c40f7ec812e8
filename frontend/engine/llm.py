"""`LLM`: batch generation in a plain Python program."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Literal, Self, overload
from weakref import WeakValueDictionary

from tqdm import tqdm

from ...protocol.errors import InvalidRequestError, RequestAbortedError
from ...protocol.ids import new_request_name
from ...protocol.sampling import RequestOutputKind, SamplingParams
from ..text import ChatTemplates, Tokenizer
from .args import engine_args
from .default_params import default_sampling_params
from .llm_engine import LLMEngine
from .outputs import RequestOutput
from .prompts import Prompt, is_batch

Message = dict[str, Any]
Params = SamplingParams | Sequence[SamplingParams] | None


class LLM:
    """A model and the processes that run it. They end with the program, however it ends."""

    def __init__(self, model: str, **arguments: Any) -> None:
        """Start the engine and wait until it is ready; `arguments` are those of `EngineArgs`.

        Raises UsageError for an unknown or wrong argument, ModelError, EngineDeadError with the root cause.
        """
        self.llm_engine = LLMEngine(engine_args(model, **arguments))
        self._templates: ChatTemplates | None = None
        self._batches: WeakValueDictionary[str, _Batch] = (
            WeakValueDictionary()
        )  # by the id of each open request

    @overload
    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: Params = None,
        *,
        use_tqdm: bool = True,
        priority: Sequence[int] | None = None,
        stream: Literal[False] | None = None,
    ) -> list[RequestOutput]: ...

    @overload
    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: Params = None,
        *,
        use_tqdm: bool = True,
        priority: Sequence[int] | None = None,
        stream: Literal[True],
    ) -> Iterator[RequestOutput]: ...

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: Params = None,
        *,
        use_tqdm: bool = True,
        priority: Sequence[int] | None = None,
        stream: bool | None = None,
    ) -> list[RequestOutput] | Iterator[RequestOutput]:
        """Generate for one prompt or for a list, with one `SamplingParams` for all or one for each.

        Returns the finished outputs in the order of the prompts. With `stream`, or with SamplingParams whose
        stream is True, returns an iterator over what comes, as it comes: the pieces, not the whole, unless
        `output_kind` says otherwise. A request that fails alone ends with finish_reason "error" or "timeout";
        the others go on.

        Raises InvalidRequestError (a ValueError) before anything is generated, EngineDeadError.
        """
        batch: list[Prompt] = list(prompts) if is_batch(prompts) else [prompts]  # type: ignore[arg-type, list-item]
        params = self._params(sampling_params, len(batch))
        if priority is not None and len(priority) != len(batch):
            raise InvalidRequestError(
                f"priority must have one entry for each of {len(batch)} prompts", param="priority"
            )
        wants_stream = any(one.stream for one in params) if stream is None else stream
        shaped = [_streaming(one) if wants_stream else _final_only(one) for one in params]
        ids = self._submit(batch, shaped, priority or [0] * len(batch))
        batch_outputs = _Batch(self.llm_engine, self._batches, ids)
        if wants_stream:
            return batch_outputs
        return self._collect(ids, batch_outputs, use_tqdm=use_tqdm)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: Params = None,
        *,
        use_tqdm: bool = True,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation or a list of them, rendered by the model's chat template.

        Raises as `generate`, and InvalidRequestError that names what is wrong with the template.
        """
        one = bool(messages) and isinstance(messages[0], dict)
        conversations: list[Any] = [messages] if one else list(messages)
        templates = self._chat_templates()
        prompts: list[Prompt] = [
            {
                "prompt_token_ids": templates.prompt_ids(
                    conversation,
                    template=chat_template,
                    add_generation_prompt=add_generation_prompt and not continue_final_message,
                    continue_final_message=continue_final_message,
                    tools=tools,
                    variables=chat_template_kwargs,
                )
            }
            for conversation in conversations
        ]
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm, stream=False)

    def get_tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer, None for a model without one."""
        return self.llm_engine.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What `generate` uses without sampling parameters: the model's generation_config.json."""
        return default_sampling_params(self.llm_engine.model.path)

    def shutdown(self) -> None:
        """End the engine's processes. May be called twice."""
        self.llm_engine.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()

    def _params(self, given: Params, count: int) -> list[SamplingParams]:
        if given is None:
            given = self.get_default_sampling_params()
        if isinstance(given, SamplingParams):
            return [given] * count
        if len(given) != count:
            raise InvalidRequestError(
                f"sampling_params must be one or one for each of {count} prompts, got {len(given)}",
                param="sampling_params",
            )
        return list(given)

    def _submit(
        self, prompts: Sequence[Prompt], params: Sequence[SamplingParams], priority: Sequence[int]
    ) -> list[str]:
        """Add all requests, or none when one of them is refused."""
        ids: list[str] = []
        try:
            for prompt, one, rank in zip(prompts, params, priority, strict=True):
                name = new_request_name()
                self.llm_engine.add_request(name, prompt, one, rank)
                ids.append(name)
        except BaseException:
            for name in ids:
                self.llm_engine.abort_request(name)
            raise
        return ids

    def _collect(self, ids: Sequence[str], outputs: "_Batch", *, use_tqdm: bool) -> list[RequestOutput]:
        finished: dict[str, RequestOutput] = {}
        num_tokens = 0
        with (
            closing(outputs),
            tqdm(total=len(ids), desc="Processed prompts", disable=not use_tqdm, dynamic_ncols=True) as bar,
        ):
            for output in outputs:
                finished[output.request_id] = output
                num_tokens += sum(len(choice.token_ids) for choice in output.outputs)
                elapsed = bar.format_dict["elapsed"]
                bar.set_postfix_str(f"output: {num_tokens / max(elapsed, 1e-9):.1f} tok/s", refresh=False)
                bar.update()
        return [finished[name] for name in ids]

    def _chat_templates(self) -> ChatTemplates:
        tokenizer = self.llm_engine.tokenizer
        if tokenizer is None:
            raise InvalidRequestError("chat needs a tokenizer, and the model has none", param="messages")
        if self._templates is None:
            self._templates = ChatTemplates.load(self.llm_engine.model.tokenizer_path, tokenizer)
        return self._templates


class _Batch:
    """The outputs of one call's requests, as they come.

    Calls may be interleaved: a step that runs for one batch also brings what belongs to another. Leaving the
    iterator, started or not, ends its requests.
    """

    def __init__(
        self, engine: LLMEngine, batches: "WeakValueDictionary[str, _Batch]", ids: Sequence[str]
    ) -> None:
        """`batches` finds the batch of an open request; it is shared by all batches of an engine."""
        self._engine = engine
        self._batches = batches
        self._open = set(ids)
        self._arrived: deque[RequestOutput] = deque()
        # Known to the others weakly: a batch that its caller dropped must end.
        for name in ids:
            batches[name] = self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RequestOutput:
        try:
            while not self._arrived:
                if not self._open:
                    raise StopIteration
                self._step()
        except BaseException:
            self.close()
            raise
        return self._arrived.popleft()

    def close(self) -> None:
        """End the requests that are open. May be called twice."""
        for name in self._open:
            self._batches.pop(name, None)
            self._engine.abort_request(name)
        self._open.clear()

    def __del__(self) -> None:
        self.close()

    def _step(self) -> None:
        outputs = self._engine.step()
        if not outputs:
            raise RequestAbortedError("the requests were ended before they were finished")
        for output in outputs:
            batch = self._batches.get(output.request_id)
            if batch is None:
                continue  # added by hand to the engine under this LLM
            batch._arrived.append(output)
            if output.finished:
                batch._open.discard(output.request_id)
                self._batches.pop(output.request_id, None)


def _final_only(params: SamplingParams) -> SamplingParams:
    copy = params.clone()
    copy.output_kind = RequestOutputKind.FINAL_ONLY
    return copy


def _streaming(params: SamplingParams) -> SamplingParams:
    copy = params.clone()
    if not params.stream and params.output_kind is RequestOutputKind.CUMULATIVE:
        copy.output_kind = RequestOutputKind.DELTA
    return copy
