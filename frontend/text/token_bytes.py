"""What each token contributes to the text, as bytes, for decoders that only join bytes.

Byte-level and SentencePiece-like decoders map every token to bytes that do not depend on its neighbours:
text is the UTF-8 reading of the joined bytes. Knowing the map, text can be decoded token by token, exactly
and fast.
"""

import codecs
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer as Backend

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_REPLACE_EACH_BYTE = "octavo.replace_each_byte"


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    """SentencePiece's reading of broken UTF-8: one U+FFFD for each byte, not one for each broken sequence."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\N{REPLACEMENT CHARACTER}" * (error.end - error.start), error.end


codecs.register_error(_REPLACE_EACH_BYTE, _replace_each_byte)


@dataclass(frozen=True)
class ByteDecoding:
    """How a tokenizer's decoder turns tokens into text by way of bytes.

    `to_bytes` maps a token as the vocabulary spells it. `errors` is the codec error handler for broken UTF-8.
    `strips_space` says that one leading space is dropped from the start of the whole text.
    """

    to_bytes: Callable[[str], bytes]
    errors: str
    strips_space: bool


class TokenBytes(dict[int, bytes]):
    """Token id -> bytes, filled as ids are asked for; ids beyond the vocabulary contribute nothing."""

    def __init__(self, backend: Backend, decoding: ByteDecoding, hidden_ids: frozenset[int]) -> None:
        super().__init__()
        self._backend = backend
        self._decoding = decoding
        self._hidden_ids = hidden_ids

    def __missing__(self, token_id: int) -> bytes:
        token = None if token_id in self._hidden_ids else self._backend.id_to_token(token_id)
        piece = b"" if token is None else self._decoding.to_bytes(token)
        self[token_id] = piece
        return piece


def byte_decoding(backend: Backend) -> ByteDecoding | None:
    """How `backend` decodes by way of bytes, or None when its decoder looks at neighbouring tokens."""
    if backend.decoder is None:
        return None
    spec: dict[str, Any] = json.loads(backend.decoder.__getstate__())
    if spec["type"] == "ByteLevel":
        return ByteDecoding(_byte_level_bytes, errors="replace", strips_space=False)
    steps = spec.get("decoders", []) if spec["type"] == "Sequence" else []
    match steps:
        case [
            {"type": "Replace", "pattern": {"String": mark}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            *rest,
        ] if rest in ([], [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]):
            to_bytes = _sentencepiece_bytes(mark)
            return ByteDecoding(to_bytes, errors=_REPLACE_EACH_BYTE, strips_space=bool(rest))
    return None


def _sentencepiece_bytes(space_mark: str) -> Callable[[str], bytes]:
    def to_bytes(token: str) -> bytes:
        if match := _BYTE_PIECE.fullmatch(token):
            return bytes.fromhex(match[1])
        return token.replace(space_mark, " ").encode("utf-8", errors="replace")

    return to_bytes


def _byte_level_bytes(token: str) -> bytes:
    try:
        return bytes([_BYTE_OF_CHARACTER[character] for character in token])
    except KeyError:  # an added token, spelled as it is
        return token.encode("utf-8", errors="replace")


def _byte_level_alphabet() -> dict[str, int]:
    """The 256 characters that byte-level vocabularies spell bytes with (GPT-2, Radford et al. 2019).

    Printable bytes of Latin-1 stand for themselves; the others are numbered from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return alphabet


_BYTE_OF_CHARACTER = _byte_level_alphabet()
