"""The bodies of /tokenize and /detokenize."""

import msgspec

from ....protocol.errors import InvalidRequestError
from .chat import Message
from .tools import Json, Tool


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """A text or a chat to turn into token ids."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    add_special_tokens: bool | None = None  # default: true for a text, false for a chat
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Json] | None = None
    tools: list[Tool] | None = None

    def check(self) -> None:
        """Raises InvalidRequestError unless there is either a text or a chat."""
        if (self.prompt is None) == (self.messages is None):
            raise InvalidRequestError("give either prompt or messages", param="prompt")

    def plain_messages(self) -> list[Json]:
        """The messages as plain data."""
        return [msgspec.to_builtins(message) for message in self.messages or ()]


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """Token ids to turn into text."""

    model: str | None = None
    tokens: list[int]
