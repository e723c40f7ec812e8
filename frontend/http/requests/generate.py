"""The body of /generate, the server's own plain endpoint."""

import msgspec

from ....protocol.errors import InvalidRequestError, UnsupportedError
from ....protocol.sampling import SamplingParams
from .prompts import Prompt, PromptField, parse_prompts
from .sampling import GenerationRequest

_DEFAULT_MAX_TOKENS = 16
_ABSENT = (msgspec.Raw(), msgspec.Raw(b"null"))


class GenerateRequest(GenerationRequest, kw_only=True):
    """A prompt as text or as token ids, and sampling parameters."""

    prompt: PromptField = msgspec.field(default_factory=msgspec.Raw)
    prompt_token_ids: list[int] | None = None

    def prompts(self) -> list[Prompt]:
        """What to go on with. Raises InvalidRequestError unless there is one kind of prompt."""
        if (self.prompt in _ABSENT) == (self.prompt_token_ids is None):
            raise InvalidRequestError("give either prompt or prompt_token_ids", param="prompt")
        if self.prompt_token_ids is not None:
            if not self.prompt_token_ids:
                raise InvalidRequestError("prompt_token_ids must not be empty", param="prompt_token_ids")
            return [self.prompt_token_ids]
        return parse_prompts(self.prompt)

    def params(self, timeout: float) -> SamplingParams:
        """The sampling parameters. Raises InvalidRequestError."""
        self.check_stream_options()
        if self.prompt_logprobs is not None:
            raise UnsupportedError(
                "an answer of plain texts has no place for prompt_logprobs", param="prompt_logprobs"
            )
        max_tokens = _DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens
        return self.sampling_params(max_tokens=max_tokens, logprobs=None, timeout=timeout)
