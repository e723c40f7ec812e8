"""Tokenizer and chat templates for an event loop: what takes long runs on a thread."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from ..text import ChatTemplates, Tokenizer
from .requests.prompts import Prompt

T = TypeVar("T")

_INLINE_CHARACTERS = 2000  # about a millisecond of tokenizing; a thread costs a tenth of that
_THREADS = 2  # large texts at once; small ones never wait for them


class TextService:
    """Text to token ids and back. Use from one loop; `close` when done."""

    def __init__(self, tokenizer: Tokenizer, templates: ChatTemplates) -> None:
        self.tokenizer = tokenizer
        self._templates = templates
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="text")

    @classmethod
    def load(cls, model_dir: Path) -> "TextService":
        """Read a model folder. Takes a while; raises ModelError."""
        tokenizer = Tokenizer.load(model_dir)
        return cls(tokenizer, ChatTemplates.load(model_dir, tokenizer))

    @property
    def template_names(self) -> list[str]:
        return self._templates.names

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def encode(self, prompts: Sequence[Prompt], *, add_special_tokens: bool = True) -> list[list[int]]:
        """Token ids of each prompt; prompts that are token ids stay as they are."""
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        if not texts:
            return [list(prompt) for prompt in prompts if not isinstance(prompt, str)]

        def encode() -> list[list[int]]:
            return self.tokenizer.encode_batch(texts, add_special_tokens=add_special_tokens)

        encoded = iter(await self._run(encode, sum(map(len, texts))))
        return [next(encoded) if isinstance(prompt, str) else list(prompt) for prompt in prompts]

    async def encode_chat(
        self, messages: Sequence[Any], *, add_special_tokens: bool = False, **options: Any
    ) -> list[int]:
        """Token ids of a rendered chat; options as for `ChatTemplates.render`."""

        def encode() -> list[int]:
            rendered = self._templates.render(messages, **options)
            return self.tokenizer.encode(rendered, add_special_tokens=add_special_tokens)

        return await self._run(encode, _size(messages))

    async def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of token ids."""
        return await self._run(
            lambda: self.tokenizer.decode(ids, skip_special_tokens=skip_special_tokens), len(ids) * 4
        )

    async def _run(self, work: Callable[[], T], size: int) -> T:
        if size <= _INLINE_CHARACTERS:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _size(value: Any) -> int:
    """Characters of all text in a message or a list of them, and a few for everything else."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return 8
