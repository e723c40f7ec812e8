"""Words that must not be generated, as the token sequences that would spell them."""

from collections.abc import Sequence

from ...protocol.columns import pack_i32
from ..text import Tokenizer


def bad_word_columns(tokenizer: Tokenizer | None, words: Sequence[str] | None) -> tuple[bytes, ...]:
    """Token ids of each word as it stands at the start of a text and behind a space, as int32 columns."""
    if tokenizer is None or not words:
        return ()
    found: list[bytes] = []
    for word in words:
        for spelling in (word, f" {word.lstrip()}"):
            column = pack_i32(tokenizer.encode(spelling, add_special_tokens=False))
            if column and column not in found:
                found.append(column)
    return tuple(found)
