"""Which decoders are read as bytes, and that the bytes are right."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from octavo.frontend.text.token_bytes import TokenBytes, byte_decoding
from octavo.tests.support.models import make_tok_b, make_tok_s


def backend_with(decoder: object) -> Backend:
    backend = Backend(models.WordLevel({"a": 0}, unk_token="a"))
    if decoder is not None:
        backend.decoder = decoder
    return backend


SENTENCEPIECE = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]


def test_byte_level_bytes_equal_the_decoders_own(tmp_path: Path) -> None:
    backend = make_tok_b(tmp_path)
    decoding = byte_decoding(backend)
    assert decoding is not None
    pieces = TokenBytes(backend, decoding, frozenset())
    for token in range(backend.get_vocab_size()):
        assert pieces[token].decode(errors="replace") == backend.decode([token], skip_special_tokens=False)
    alphabet = b"".join(pieces[token] for token in range(3, 259))
    assert sorted(alphabet) == list(range(256))


def test_sentencepiece_bytes_equal_the_decoders_own(tmp_path: Path) -> None:
    backend = make_tok_s(tmp_path)
    decoding = byte_decoding(backend)
    assert decoding is not None
    pieces = TokenBytes(backend, decoding, frozenset())
    first = backend.token_to_id("z")
    for token in range(backend.get_vocab_size()):
        text = backend.decode([first, token], skip_special_tokens=False)
        assert (b"z" + pieces[token]).decode(errors="replace") == text


def test_hidden_tokens_contribute_nothing(tmp_path: Path) -> None:
    backend = make_tok_b(tmp_path)
    decoding = byte_decoding(backend)
    assert decoding is not None
    assert TokenBytes(backend, decoding, frozenset({2}))[2] == b""


def test_an_added_token_outside_the_byte_alphabet_is_spelled_as_it_is(tmp_path: Path) -> None:
    backend = make_tok_b(tmp_path)
    backend.add_tokens(["<▁ユーザ▁>"])
    decoding = byte_decoding(backend)
    assert decoding is not None
    token = backend.token_to_id("<▁ユーザ▁>")
    piece = TokenBytes(backend, decoding, frozenset())[token]
    assert piece.decode() == backend.decode([token]) == "<▁ユーザ▁>"


@pytest.mark.parametrize(
    ("decoder", "strips_space"),
    [
        (decoders.ByteLevel(), False),
        (decoders.Sequence(SENTENCEPIECE), False),
        (decoders.Sequence([*SENTENCEPIECE, decoders.Strip(" ", 1, 0)]), True),
    ],
)
def test_decoders_that_join_bytes(decoder: object, strips_space: bool) -> None:
    decoding = byte_decoding(backend_with(decoder))
    assert decoding is not None
    assert decoding.strips_space is strips_space


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        decoders.WordPiece(),
        decoders.Metaspace(),
        decoders.Sequence([*SENTENCEPIECE, decoders.Strip(" ", 2, 0)]),
        decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()]),
    ],
)
def test_decoders_that_look_at_neighbours(decoder: object) -> None:
    assert byte_decoding(backend_with(decoder)) is None
