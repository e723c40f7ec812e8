"""The body of /v1/completions."""

from ....protocol.errors import InvalidRequestError, UnsupportedError
from ....protocol.sampling import SamplingParams
from .prompts import PromptField
from .sampling import GenerationRequest

_DEFAULT_MAX_TOKENS = 16


class CompletionRequest(GenerationRequest, kw_only=True):
    """A text, or several, to go on with."""

    prompt: PromptField
    echo: bool | None = None  # answer with the prompt in front
    logprobs: int | None = None  # how many alternatives to report beside each token
    best_of: int | None = None
    return_token_ids: bool | None = None  # answer with the ids of the output tokens beside the text

    def params(self, timeout: float) -> SamplingParams:
        """The sampling parameters of each prompt. Raises InvalidRequestError."""
        self.check_stream_options()
        if self.best_of not in (None, self.n or 1):
            raise UnsupportedError("best_of must be absent or equal to n", param="best_of")
        max_tokens = _DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens
        if max_tokens == 0 and self.min_tokens:
            raise InvalidRequestError("min_tokens must be at most max_tokens (0)", param="min_tokens")
        params = self.sampling_params(
            # Reading a prompt draws a token, so that no answer is shorter; the one too many is not shown.
            max_tokens=max_tokens or 1,
            logprobs=self.logprobs,
            timeout=timeout,
        )
        if self.echo and self.logprobs is not None:
            params.prompt_logprobs = max(self.logprobs, self.prompt_logprobs or 0)
        return params
