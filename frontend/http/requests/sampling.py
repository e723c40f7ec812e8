"""The fields that all requests for text share, and the sampling parameters they make."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from ....protocol.errors import InvalidRequestError
from ....protocol.sampling import RequestOutputKind, SamplingParams
from ....protocol.structured import StructuredOutputsParams
from .response_format import ResponseFormat


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Options of a streamed answer."""

    include_usage: bool | None = None  # a last chunk with the token counts
    continuous_usage_stats: bool | None = None  # the counts so far in every chunk
    include_obfuscation: bool | None = None  # accepted; chunks are never padded


class GenerationRequest(msgspec.Struct, kw_only=True):
    """Fields of every request for text; None stands for the default, as if the field were absent."""

    model: str | None = None  # absent: the model that is served
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    structured_outputs: StructuredOutputsParams | None = None
    response_format: ResponseFormat | None = None  # OpenAI's way to ask for structured outputs
    prompt_logprobs: int | None = None  # how many alternatives to report beside each token of the prompt
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    temperature_last: bool | None = None
    timeout: float | None = None  # seconds from arrival to the end
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None  # tenant, for fair order
    priority: int | None = None  # lower runs earlier
    cache_salt: str | None = None  # requests share cached prefixes only with requests of the same salt
    request_id: str | None = None  # the request's name, unless the header X-Request-Id gives one
    add_special_tokens: bool | None = None  # whether the tokenizer adds bos and eos to a prompt
    truncate_prompt_tokens: int | None = None  # keep the last tokens of the prompt; -1: what fits

    @property
    def grammar_field(self) -> str:
        """The field that asks for a grammar, if one does."""
        return "structured_outputs" if self.response_format is None else "response_format"

    def check_stream_options(self) -> None:
        """Raises InvalidRequestError when options of a stream come without a stream."""
        if self.stream_options is not None and not self.stream:
            raise InvalidRequestError(
                "stream_options can only be set together with stream", param="stream_options"
            )
        if self.prompt_logprobs is not None and self.stream:
            raise InvalidRequestError(
                "prompt_logprobs cannot be used together with stream", param="prompt_logprobs"
            )

    def sampling_params(
        self,
        *,
        max_tokens: int | None,
        logprobs: int | None,
        timeout: float = 0.0,
        names: Mapping[str, str] | None = None,
    ) -> SamplingParams:
        """The sampling parameters. `timeout` is the server's bound in seconds, 0 for none.

        `names` says what this request calls a parameter. Raises InvalidRequestError that names the field.
        """
        wanted = self.response_format.grammar() if self.response_format is not None else None
        if wanted is not None and self.structured_outputs is not None:
            raise InvalidRequestError(
                "response_format cannot be used together with structured_outputs", param="response_format"
            )
        given = {name: value for name in _COPIED if (value := getattr(self, name)) is not None}
        if wanted is not None:
            given["structured_outputs"] = wanted
        if timeout and given.get("timeout", timeout) >= timeout:
            given["timeout"] = timeout
        with renamed(names or {}):
            return SamplingParams(
                max_tokens=max_tokens,
                logprobs=logprobs,
                output_kind=RequestOutputKind.DELTA,
                **given,
            )


# Fields that mean the same in a request and in the sampling parameters.
_COPIED = tuple(
    name
    for name in SamplingParams.__struct_fields__
    if name in GenerationRequest.__struct_fields__ and name not in ("max_tokens", "stream")
)


@contextmanager
def renamed(names: Mapping[str, str]) -> Iterator[None]:
    """Errors about a sampling parameter speak of the field that the client sent."""
    try:
        yield
    except InvalidRequestError as error:
        name = names.get(error.param or "")
        if name is None:
            raise
        message = error.message.replace(str(error.param), name, 1)
        raise type(error)(message, param=name) from error
