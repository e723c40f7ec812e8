"""Token sequences and expectations that the tests of text share."""

from collections.abc import Sequence
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import strategies as st

from octavo.frontend.text import Tokenizer

from .models import make_tok_b, make_tok_s

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@cache
def tokenizer(kind: str) -> Tokenizer:
    """TOK-B, TOK-S, or TOK-B read through the window that decoders of other kinds need."""
    with TemporaryDirectory() as folder:
        {"B": make_tok_b, "S": make_tok_s, "window": make_tok_b}[kind](Path(folder))
        loaded = Tokenizer.load(Path(folder))
    if kind == "window":
        loaded.byte_decoding = None
    return loaded


def ids_of(kind: str) -> st.SearchStrategy[list[int]]:
    """Token sequences of texts, of single tokens and of special tokens, every character complete."""
    tok = tokenizer(kind)
    words = st.sampled_from(["the cat", " sat", "dog", " ", "  ", "é", "語", "😀", "\n", "z.", "👩‍👧"])
    texts = st.one_of(words, st.text(max_size=5).filter(lambda text: REPLACEMENT not in text))
    encoded = texts.map(lambda text: tok.encode(text, add_special_tokens=False))
    special = st.sampled_from(sorted(tok.special_ids)).map(lambda token: [token])
    return st.lists(st.one_of(encoded, encoded, special), max_size=8).map(lambda parts: list(chain(*parts)))


def any_ids(kind: str) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, tokenizer(kind).vocab_size - 1), max_size=30)


def split(ids: list[int], data: st.DataObject) -> list[list[int]]:
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=6).map(sorted)) if ids else []
    bounds = [0, *cuts, len(ids)]
    return [ids[start:end] for start, end in pairwise(bounds)]


def earliest_stop(text: str, strings: Sequence[str]) -> tuple[int, int] | None:
    """(start, end) of the stop string that is complete first, the longest of those."""
    found = [
        (end, end - len(string))
        for string in strings
        for end in range(len(string), len(text) + 1)
        if text.endswith(string, 0, end)
    ]
    return None if not found else (min(found)[1], min(found)[0])
