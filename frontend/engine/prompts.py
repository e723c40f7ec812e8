"""Prompts in each form the Python API takes."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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


@dataclass(frozen=True, slots=True)
class _Parsed:
    text: str | None
    token_ids: list[int] | None  # None: those of the text
    cache_salt: str


def encode_prompt(tokenizer: Tokenizer | None, prompt: Prompt) -> EncodedPrompt:
    """Token ids of a prompt. Raises InvalidRequestError for one of another form."""
    return encode_prompts(tokenizer, [prompt])[0]


def encode_prompts(tokenizer: Tokenizer | None, prompts: Sequence[Prompt]) -> list[EncodedPrompt]:
    """As `encode_prompt`, for several at once, which takes less time than one after the other."""
    parsed = [_parse(prompt) for prompt in prompts]
    texts = [one.text for one in parsed if one.token_ids is None and one.text is not None]
    if texts and tokenizer is None:
        raise InvalidRequestError("the model has no tokenizer: give token ids", param="prompt")
    encoded = iter(tokenizer.encode_batch(texts) if tokenizer is not None and texts else ())
    return [
        EncodedPrompt(one.text, next(encoded) if one.token_ids is None else one.token_ids, one.cache_salt)
        for one in parsed
    ]


def is_batch(prompts: object) -> bool:
    """Whether `prompts` is a list of prompts rather than one prompt."""
    if isinstance(prompts, str | Mapping) or not isinstance(prompts, Sequence):
        return False
    return not prompts or isinstance(prompts[0], str | Mapping | Sequence)


def _parse(prompt: Prompt) -> _Parsed:
    if isinstance(prompt, str):
        return _Parsed(prompt, None, "")
    if isinstance(prompt, Mapping):
        return _parse_dict(prompt)
    return _Parsed(None, _ids(prompt), "")


def _parse_dict(prompt: Mapping[str, object]) -> _Parsed:
    unknown = sorted(set(prompt) - _KEYS)
    if unknown:
        raise InvalidRequestError(f"a prompt has no field {unknown[0]!r}; it is {_FORMS}", param="prompt")
    salt, text = prompt.get("cache_salt") or "", prompt.get("prompt")
    if not isinstance(salt, str):
        raise InvalidRequestError("cache_salt must be a string", param="cache_salt")
    if text is not None and not isinstance(text, str):
        raise InvalidRequestError(
            f"a prompt's text must be a string, got {type(text).__name__}", param="prompt"
        )
    ids = prompt.get("prompt_token_ids")
    if ids is None and text is None:
        raise InvalidRequestError(f"a prompt must be {_FORMS}", param="prompt")
    return _Parsed(text, None if ids is None else _ids(ids), salt)


def _ids(prompt: object) -> list[int]:
    if not isinstance(prompt, Sequence) or isinstance(prompt, str | bytes):
        raise InvalidRequestError(f"a prompt must be {_FORMS}, got {type(prompt).__name__}", param="prompt")
    ids = list(prompt)
    kinds = set(map(type, ids))
    if kinds - {int}:
        ids = [_integer(token) for token in ids]
    if ids and not 0 <= min(ids) <= max(ids) < 2**31:
        wrong = min(ids) if min(ids) < 0 else max(ids)
        raise InvalidRequestError(f"prompt token ids must be integers from 0, got {wrong}", param="prompt")
    return ids


def _integer(token: object) -> int:
    """A token id of another integer type, such as NumPy's."""
    try:
        if isinstance(token, bool):
            raise TypeError
        return operator.index(token)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidRequestError(
            f"prompt token ids must be integers from 0, got {token!r}", param="prompt"
        ) from None
