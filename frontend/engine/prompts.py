"""Prompts in each form the Python API takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from ...protocol.errors import InvalidRequestError
from ..text import Tokenizer

Prompt: TypeAlias = str | Sequence[int] | Mapping[str, object]

_FORMS = "a string, a list of token ids, or a dict with 'prompt' or 'prompt_token_ids'"
_KEYS = frozenset({"prompt", "prompt_token_ids", "cache_salt"})


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt as token ids, with its text when text was given."""

    text: str | None
    token_ids: list[int]
    cache_salt: str = ""


def encode_prompt(tokenizer: Tokenizer | None, prompt: Prompt) -> EncodedPrompt:
    """Token ids of a prompt. Raises InvalidRequestError for one of another form."""
    if isinstance(prompt, Mapping):
        return _encode_dict(tokenizer, prompt)
    if isinstance(prompt, str):
        if tokenizer is None:
            raise InvalidRequestError("the model has no tokenizer: give token ids", param="prompt")
        return EncodedPrompt(prompt, tokenizer.encode(prompt))
    return EncodedPrompt(None, _ids(prompt))


def is_batch(prompts: object) -> bool:
    """Whether `prompts` is a list of prompts rather than one prompt."""
    if isinstance(prompts, str | Mapping) or not isinstance(prompts, Sequence):
        return False
    return not prompts or not isinstance(prompts[0], int)


def _encode_dict(tokenizer: Tokenizer | None, prompt: Mapping[str, object]) -> EncodedPrompt:
    unknown = sorted(set(prompt) - _KEYS)
    if unknown:
        raise InvalidRequestError(f"a prompt has no field {unknown[0]!r}; it is {_FORMS}", param="prompt")
    salt, text = prompt.get("cache_salt", ""), prompt.get("prompt")
    if not isinstance(salt, str):
        raise InvalidRequestError("cache_salt must be a string", param="cache_salt")
    if "prompt_token_ids" in prompt:
        ids = _ids(prompt["prompt_token_ids"])
        return EncodedPrompt(text if isinstance(text, str) else None, ids, salt)
    if not isinstance(text, str):
        raise InvalidRequestError(f"a prompt must be {_FORMS}", param="prompt")
    encoded = encode_prompt(tokenizer, text)
    return EncodedPrompt(encoded.text, encoded.token_ids, salt)


def _ids(prompt: object) -> list[int]:
    if not isinstance(prompt, Sequence) or isinstance(prompt, str | bytes):
        raise InvalidRequestError(f"a prompt must be {_FORMS}, got {type(prompt).__name__}", param="prompt")
    for token in prompt:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < 2**31:
            raise InvalidRequestError(
                f"prompt token ids must be integers from 0, got {token!r}", param="prompt"
            )
    return list(cast(Sequence[int], prompt))
