"""`LLM`: batch generation in a plain Python program."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self, overload

from tqdm import tqdm

from ...protocol.errors import InvalidRequestError
from ...protocol.ids import new_request_name
from ...protocol.sampling import RequestOutputKind, SamplingParams
from ..text import ChatTemplates, Tokenizer
from .args import engine_args
from .beam_search import BeamSearch, BeamSearchOutput, BeamSearchParams, search
from .default_params import default_sampling_params
from .llm_engine import LLMEngine, NewRequest
from .output_stream import OutputStream
from .outputs import RequestOutput
from .prompts import EncodedPrompt, Prompt, encode_prompts, is_batch

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

        Without parameters those are used that the model's folder recommends. `priority` has one number for
        each prompt, lower ones run earlier under the scheduling_policy "priority". Returns the finished
        outputs in the order of the prompts. With `stream`, or with SamplingParams whose stream is True,
        returns an iterator over what comes, as it comes: the pieces, not the whole, unless `output_kind` says
        otherwise. A request that fails alone ends with finish_reason "error" or "timeout" and has an `error`;
        the others go on. Ctrl-C ends the requests, not the engine.

        Raises InvalidRequestError (a ValueError) before anything is generated, EngineDeadError.
        """
        batch: list[Prompt] = list(prompts) if is_batch(prompts) else [prompts]  # type: ignore[arg-type, list-item]
        encoded = encode_prompts(self.get_tokenizer(), batch)
        return self._run(encoded, sampling_params, use_tqdm=use_tqdm, priority=priority, stream=stream)

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
        one = bool(messages) and isinstance(messages[0], Mapping)
        conversations: Sequence[Any] = [messages] if one else messages
        texts = [
            self._chat_templates().render(
                conversation,
                template=chat_template,
                add_generation_prompt=add_generation_prompt and not continue_final_message,
                continue_final_message=continue_final_message,
                tools=tools,
                variables=chat_template_kwargs,
            )
            for conversation in conversations
        ]
        # Templates write bos themselves.
        ids = self._required_tokenizer().encode_batch(texts, add_special_tokens=False) if texts else []
        encoded = [EncodedPrompt(text, tokens) for text, tokens in zip(texts, ids, strict=True)]
        outputs = self._run(encoded, sampling_params, use_tqdm=use_tqdm, priority=None, stream=False)
        return list(outputs)

    def beam_search(
        self, prompts: Prompt | Sequence[Prompt], params: BeamSearchParams
    ) -> list[BeamSearchOutput]:
        """The `beam_width` best sequences of each prompt, best first, by their log-probabilities.

        The prefix cache makes a step read only what is new in a beam. Raises as `generate`.
        """
        batch: list[Prompt] = list(prompts) if is_batch(prompts) else [prompts]  # type: ignore[arg-type, list-item]
        tokenizer = self.get_tokenizer()
        encoded = encode_prompts(tokenizer, batch)
        eos = self.llm_engine.model.eos_token_ids
        searches = [BeamSearch(prompt.token_ids, params, eos) for prompt in encoded]
        search(searches, params, self._step)
        outputs = []
        for one in searches:
            sequences = one.result()
            for sequence in sequences:
                sequence.text = tokenizer.decode(one.answer_of(sequence)) if tokenizer is not None else None
            outputs.append(BeamSearchOutput(sequences))
        return outputs

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

    def _run(
        self,
        prompts: Sequence[EncodedPrompt],
        sampling_params: Params,
        *,
        use_tqdm: bool,
        priority: Sequence[int] | None,
        stream: bool | None,
    ) -> list[RequestOutput] | Iterator[RequestOutput]:
        params = self._params(sampling_params, len(prompts))
        if stream is None:
            stream = any(one.stream for one in params)
        if priority is not None and len(priority) != len(prompts):
            raise InvalidRequestError(
                f"priority must have one entry for each of {len(prompts)} prompts, got {len(priority)}",
                param="priority",
            )
        shape = _streaming if stream else _final_only
        shaped = {id(one): shape(one) for one in params}
        requests = [
            NewRequest(new_request_name(), prompt, shaped[id(one)], rank)
            for prompt, one, rank in zip(prompts, params, priority or [0] * len(prompts), strict=True)
        ]
        self.llm_engine.add_requests(requests)
        ids = [request.request_id for request in requests]
        outputs = OutputStream(self.llm_engine, ids)
        return outputs if stream else _collect(outputs, ids, use_tqdm=use_tqdm)

    def _step(self, prompts: list[list[int]], params: SamplingParams) -> list[RequestOutput]:
        encoded = [EncodedPrompt(None, tokens) for tokens in prompts]
        return list(self._run(encoded, params, use_tqdm=False, priority=None, stream=False))

    def _params(self, given: Params, count: int) -> Sequence[SamplingParams]:
        if given is None:
            given = self.get_default_sampling_params()
        if isinstance(given, SamplingParams):
            return [given] * count
        if len(given) != count:
            raise InvalidRequestError(
                f"sampling_params must be one, or one for each of {count} prompts, got {len(given)}",
                param="sampling_params",
            )
        return given

    def _required_tokenizer(self) -> Tokenizer:
        tokenizer = self.get_tokenizer()
        if tokenizer is None:
            raise InvalidRequestError("chat needs a tokenizer, and the model has none", param="messages")
        return tokenizer

    def _chat_templates(self) -> ChatTemplates:
        if self._templates is None:
            folder = self.llm_engine.model.tokenizer_path
            self._templates = ChatTemplates.load(folder, self._required_tokenizer())
        return self._templates


def _collect(outputs: OutputStream, ids: Sequence[str], *, use_tqdm: bool) -> list[RequestOutput]:
    """All outputs, in the order of `ids`, with a bar that counts them."""
    finished: dict[str, RequestOutput] = {}
    num_tokens = 0
    bar = tqdm(total=len(ids), desc="Processed prompts", disable=not use_tqdm, dynamic_ncols=True)
    with bar, outputs:
        for output in outputs:
            finished[output.request_id] = output
            num_tokens += sum(len(choice.token_ids) for choice in output.outputs)
            elapsed = max(bar.format_dict["elapsed"], 1e-9)
            bar.set_postfix_str(f"output: {num_tokens / elapsed:.1f} tok/s", refresh=False)
            bar.update()
    return [finished[name] for name in ids]


def _final_only(params: SamplingParams) -> SamplingParams:
    copy = params.clone()
    copy.output_kind = RequestOutputKind.FINAL_ONLY
    return copy


def _streaming(params: SamplingParams) -> SamplingParams:
    copy = params.clone()
    if not params.stream and params.output_kind is RequestOutputKind.CUMULATIVE:
        copy.output_kind = RequestOutputKind.DELTA
    return copy
