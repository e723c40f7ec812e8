"""Token ids to text as they come: every piece is final when it is returned."""

from abc import ABC, abstractmethod
from codecs import utf_8_decode
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .token_bytes import ByteDecoding, TokenBytes

if TYPE_CHECKING:
    from .tokenizer import Tokenizer

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# Bounds what may be held: a U+FFFD followed by this many tokens is no character that was only cut.
_MAX_BYTES_OF_CHARACTER = 4
_CONTEXT_TOKENS = 6
_WINDOW_TOKENS = 12


class Detokenizer(ABC):
    """The text of one choice. The joined pieces are what decode(prompt + output) adds to decode(prompt).

    A character whose bytes are spread over tokens is held until it is complete, so a piece never holds a
    U+FFFD for a character that was only cut.
    """

    @staticmethod
    def create(
        tokenizer: "Tokenizer",
        prompt_ids: Sequence[int],
        *,
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
    ) -> "Detokenizer":
        """The detokenizer that suits the tokenizer's decoder; only the end of `prompt_ids` is looked at."""
        pieces = tokenizer.visible_bytes(skip_special_tokens=skip_special_tokens)
        if pieces is not None and tokenizer.byte_decoding is not None:
            return ByteDetokenizer(pieces, tokenizer.byte_decoding, prompt_ids)
        joins_added = not (skip_special_tokens or spaces_between_special_tokens)
        return WindowDetokenizer(
            tokenizer, prompt_ids, skip_special_tokens=skip_special_tokens, joins_added_tokens=joins_added
        )

    @abstractmethod
    def push(self, token_ids: Sequence[int]) -> str:
        """Take the next tokens of the output; returns the text that is now certain, possibly empty."""

    @abstractmethod
    def flush(self) -> str:
        """The output has ended: returns what was held, with U+FFFD for a character cut by the end."""


class ByteDetokenizer(Detokenizer):
    """For decoders that join the bytes of tokens: joins them and reads UTF-8.

    Where SentencePiece-like decoders meet a run of byte tokens that is broken in one place they replace every
    byte of the run. A character that was complete, and sent, stays here.
    """

    def __init__(self, pieces: TokenBytes, decoding: ByteDecoding, prompt_ids: Sequence[int]) -> None:
        self._pieces = pieces
        self._errors = decoding.errors
        self._pending = _cut_character(_last_bytes(pieces, prompt_ids))
        # What the prompt's own text shows in the place of a character that the output may complete.
        self._shown = utf_8_decode(self._pending, self._errors, True)[0]
        self._strips_space = decoding.strips_space and not any(pieces[token] for token in prompt_ids)

    def push(self, token_ids: Sequence[int]) -> str:
        data = self._pending + b"".join(map(self._pieces.__getitem__, token_ids))
        if self._strips_space and data:
            data = data.removeprefix(b" ")
            self._strips_space = False
        text, used = utf_8_decode(data, self._errors, False)
        self._pending = data[used:]
        return self._past_prompt(text) if self._shown else text

    def flush(self) -> str:
        text, _ = utf_8_decode(self._pending, self._errors, True)
        self._pending = b""
        return self._past_prompt(text) if self._shown else text

    def _past_prompt(self, text: str) -> str:
        if text:
            text, self._shown = text.removeprefix(self._shown), ""
        return text


class WindowDetokenizer(Detokenizer):
    """For every other decoder: decodes the last few tokens again and again, and returns what is new.

    `joins_added_tokens` spells added tokens that follow each other without the space the decoder puts
    between.
    """

    def __init__(
        self,
        tokenizer: "Tokenizer",
        prompt_ids: Sequence[int],
        *,
        skip_special_tokens: bool,
        joins_added_tokens: bool,
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._joined_ids = tokenizer.added_ids if joins_added_tokens else frozenset()
        self._window = self._context(prompt_ids)
        self._num_pending = 0  # tokens of the window whose text was not yet returned in full
        self._sent = len(self._decode(self._window))  # characters of the window's text that were returned

    def push(self, token_ids: Sequence[int]) -> str:
        return "".join([self._push_one(token) for token in token_ids])

    def flush(self) -> str:
        text = self._decode(self._window)
        piece, self._sent, self._num_pending = text[self._sent :], len(text), 0
        return piece

    def _push_one(self, token: int) -> str:
        if token in self._joined_ids and self._window and self._window[-1] in self._joined_ids:
            piece = self.flush() + (self._tokenizer.id_to_token(token) or "")
            self._window = [token]
            self._sent = len(self._decode(self._window))
            return piece
        self._window.append(token)
        self._num_pending += 1
        text = self._decode(self._window)
        piece = text[self._sent : self._num_certain(text)]
        self._sent += len(piece)
        if self._sent == len(text):
            self._num_pending = 0
            self._slide()
        return piece

    def _num_certain(self, text: str) -> int:
        """How many characters of the window's text later tokens cannot change."""
        num_replacements = len(text) - len(text.rstrip(_REPLACEMENT))
        if self._num_pending > _WINDOW_TOKENS:
            return len(text)
        if self._num_pending >= _MAX_BYTES_OF_CHARACTER:
            num_replacements = min(num_replacements, _MAX_BYTES_OF_CHARACTER - 1)
        return max(self._sent, len(text) - num_replacements)

    def _slide(self) -> None:
        if len(self._window) > _WINDOW_TOKENS:
            self._window = self._context(self._window)
            self._sent = len(self._decode(self._window))

    def _context(self, ids: Sequence[int]) -> list[int]:
        """The last tokens of `ids`, enough to have text: the start of a text is decoded differently."""
        size = _CONTEXT_TOKENS
        while size < len(ids) and not self._decode(ids[-size:]):
            size *= 2
        return list(ids[-size:])

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip_special_tokens)


def _last_bytes(pieces: TokenBytes, ids: Sequence[int]) -> bytes:
    """At least the last 3 bytes that `ids` contribute, if there are so many."""
    data = b""
    for token in reversed(ids):
        data = pieces[token] + data
        if len(data) >= _MAX_BYTES_OF_CHARACTER - 1:
            break
    return data


def _cut_character(data: bytes) -> bytes:
    """The bytes at the end of `data` that begin a character and do not complete it."""
    for length in range(min(len(data), _MAX_BYTES_OF_CHARACTER - 1), 0, -1):
        tail = data[-length:]
        try:
            _, used = utf_8_decode(tail, "strict", False)
        except UnicodeDecodeError:
            continue  # the tail starts inside a character
        return tail[used:]
    return b""
