"""The body of /v1/chat/completions."""

import msgspec

from ....protocol.errors import InvalidRequestError
from ....protocol.sampling import SamplingParams
from .sampling import GenerationRequest
from .tools import Json, NamedTool, Tool


class ContentPart(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a message. Parts of other types than text are refused by their type."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: Json = None
    input_audio: Json = None
    audio_url: Json = None
    video_url: Json = None
    file: Json = None
    uuid: str | None = None


class FunctionOfCall(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The function of an earlier call, with the arguments as JSON text or as an object."""

    name: str
    arguments: str | dict[str, Json]
    parsed_arguments: Json = None  # what a client made of the arguments

    def __post_init__(self) -> None:
        self.parsed_arguments = None  # no template shall print it


class ToolCall(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An earlier call that the model made."""

    function: FunctionOfCall
    id: str | None = None
    type: str = "function"
    index: int | None = None


class Message(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A message of a chat, as templates see it."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    # Clients send whole answers back as messages; these fields of an answer are no part of a prompt.
    annotations: Json = None
    audio: None = None
    function_call: None = None
    parsed: Json = None  # what a client made of the content

    def __post_init__(self) -> None:
        self.parsed = None  # no template shall print it


class ChatRequest(GenerationRequest, kw_only=True):
    """A chat to go on with."""

    messages: list[Message]
    max_completion_tokens: int | None = None  # goes before max_tokens
    logprobs: bool | None = None
    top_logprobs: int | None = None  # how many alternatives to report beside each token
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = (
        None  # name of one of the model's templates; a source needs the server's trust
    )
    chat_template_kwargs: dict[str, Json] | None = None  # variables for the template
    documents: list[Json] | None = None
    tools: list[Tool] | None = None
    tool_choice: str | NamedTool | None = None  # none, auto, required, or the function to call
    parallel_tool_calls: bool | None = None  # false: at most one call
    include_reasoning: bool | None = None  # false: the answer without what led to it

    @property
    def grammar_field(self) -> str:
        forced = self.tool_choice not in (None, "none", "auto")
        return "tools" if forced else super().grammar_field

    def params(self, timeout: float) -> SamplingParams:
        """The sampling parameters. Raises InvalidRequestError."""
        self.check_stream_options()
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidRequestError("top_logprobs needs logprobs to be true", param="top_logprobs")
        names = {"logprobs": "top_logprobs"}
        max_tokens = self.max_tokens
        if self.max_completion_tokens is not None:
            names["max_tokens"] = "max_completion_tokens"
            max_tokens = self.max_completion_tokens
        return self.sampling_params(
            max_tokens=max_tokens,
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
            timeout=timeout,
            names=names,
        )

    def plain_messages(self) -> list[Json]:
        """The messages as plain data, without the fields that were not given."""
        return [msgspec.to_builtins(message) for message in self.messages]
