"""Tokenizer and chat templates for an event loop: what takes long runs on a thread."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..text import ChatTemplates, Tokenizer
from ..text.answer.style import AnswerStyle, answer_style
from .requests.prompts import Prompt

T = TypeVar("T")

_INLINE_CHARACTERS = 2000  # about a millisecond of tokenizing; a thread costs a tenth of that
_THREADS = 2  # large texts at once; small ones never wait for them


class ChatPrompt(NamedTuple):
    """A chat as the model reads it."""

    text: str
    ids: list[int]


class TextService:
    """Text to token ids and back. Use from one loop; `close` when done."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        templates: ChatTemplates,
        *,
        tool_parser: str = "auto",
        reasoning_parser: str = "auto",
    ) -> None:
        """The parsers are names of `answer_style`."""
        self.tokenizer = tokenizer
        self._templates = templates
        self._parsers = {"tool_parser": tool_parser, "reasoning_parser": reasoning_parser}
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="text")

    @classmethod
    def load(cls, model_dir: Path, **parsers: str) -> "TextService":
        """Read a model folder. Takes a while; raises ModelError, and UsageError for an unknown parser."""
        answer_style("", **parsers)
        tokenizer = Tokenizer.load(model_dir)
        return cls(tokenizer, ChatTemplates.load(model_dir, tokenizer), **parsers)

    @property
    def template_names(self) -> list[str]:
        return self._templates.names

    def style(self, template: str | None, *, has_tools: bool) -> AnswerStyle:
        """How the model writes answers to chats that are rendered with this template."""
        return answer_style(self._templates.source(template, has_tools=has_tools), **self._parsers)

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
    ) -> ChatPrompt:
        """A rendered chat; options as for `ChatTemplates.render`."""

        def encode() -> ChatPrompt:
            rendered = self._templates.render(messages, **options)
            return ChatPrompt(
                rendered, self.tokenizer.encode(rendered, add_special_tokens=add_special_tokens)
            )

        return await self._run(encode, _size(messages) + _size(options))

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
