"""Detokenizer: joined pieces are the text, and no piece is ever taken back."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from octavo.frontend.text import Detokenizer, Tokenizer
from octavo.frontend.text.detokenizer import ByteDetokenizer, WindowDetokenizer
from octavo.frontend.text.special_tokens import SpecialTokens
from octavo.tests.support.text import REPLACEMENT, any_ids, ids_of, split, tokenizer


def other_tokenizer(decoder: object, tokens: Sequence[str], special: Sequence[str] = ()) -> Tokenizer:
    names = [*special, *tokens]
    backend = Backend(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token=names[0]))
    if decoder is not None:
        backend.decoder = decoder
    backend.add_special_tokens(list(special))
    return Tokenizer(backend, SpecialTokens({}, (), ()), vocab_size=len(names), eos_token_ids=())


def pieces(
    tok: Tokenizer, prompt: Sequence[int], chunks: Sequence[Sequence[int]], **options: bool
) -> list[str]:
    detokenizer = Detokenizer.create(tok, prompt, **options)
    return [*(detokenizer.push(chunk) for chunk in chunks), detokenizer.flush()]


def past_prompt(tok: Tokenizer, prompt: list[int], output: list[int], *, skip: bool) -> str:
    before = tok.decode(prompt, skip_special_tokens=skip)
    after = tok.decode(prompt + output, skip_special_tokens=skip)
    return after.removeprefix(before)


def test_the_decoder_decides_the_detokenizer() -> None:
    assert isinstance(Detokenizer.create(tokenizer("B"), []), ByteDetokenizer)
    assert isinstance(Detokenizer.create(tokenizer("S"), []), ByteDetokenizer)
    assert isinstance(Detokenizer.create(tokenizer("window"), []), WindowDetokenizer)


@pytest.mark.parametrize("kind", ["B", "S", "window"])
def test_joined_pieces_are_what_the_output_adds_to_the_prompt(kind: str) -> None:
    @settings(max_examples=170, deadline=None)
    @given(ids_of(kind), ids_of(kind), st.booleans())
    def check(prompt: list[int], output: list[int], skip: bool) -> None:
        found = pieces(tokenizer(kind), prompt, [[token] for token in output], skip_special_tokens=skip)
        assert "".join(found) == past_prompt(tokenizer(kind), prompt, output, skip=skip)
        assert not any(REPLACEMENT in piece for piece in found)

    check()


@pytest.mark.parametrize("kind", ["B", "S", "window"])
def test_how_tokens_arrive_does_not_change_the_text(kind: str) -> None:
    @settings(max_examples=100, deadline=None)
    @given(any_ids(kind), any_ids(kind), st.data())
    def check(prompt: list[int], output: list[int], data: st.DataObject) -> None:
        one_by_one = pieces(tokenizer(kind), prompt, [[token] for token in output])
        assert "".join(pieces(tokenizer(kind), prompt, split(output, data))) == "".join(one_by_one)

    check()


@settings(max_examples=170, deadline=None)
@given(any_ids("B"), any_ids("B"))
def test_broken_bytes_of_a_byte_level_tokenizer_read_as_in_decode(
    prompt: list[int], output: list[int]
) -> None:
    text = "".join(pieces(tokenizer("B"), prompt, [[token] for token in output]))
    whole = tokenizer("B").decode(prompt + output)
    assert whole.endswith(text)
    # The prompt's text ends in U+FFFD where its last character was cut: the output may complete that one.
    assert (tokenizer("B").decode(prompt).rstrip(REPLACEMENT)) == whole[: len(whole) - len(text)].rstrip(
        REPLACEMENT
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([b"\x80", b"\xc3", b"\xe8\xaa", b"\xf0\x9f\x98", b"\xff\xfe", b"\xe8\xe8\xaa"]))
)
def test_broken_bytes_of_a_sentencepiece_tokenizer_read_as_in_decode(runs: list[bytes]) -> None:
    tok = tokenizer("S")
    letter = tok.encode("z")[-1]
    output = [letter]
    for run in runs:
        output += [*(tok.token_to_id(f"<0x{byte:02X}>") or 0 for byte in run), letter]
    assert "".join(pieces(tok, [], [[token] for token in output])) == tok.decode(output)


def test_o06_an_emoji_is_one_piece() -> None:
    for kind in ("B", "S", "window"):
        tok = tokenizer(kind)
        output = tok.encode("Q😀語z.", add_special_tokens=False)
        found = pieces(tok, tok.encode("x"), [[token] for token in output])
        assert "".join(found).strip() == "Q😀語z."
        assert {"😀", "語"} <= set(found)


def test_o06_a_cut_emoji_shows_as_in_decode_at_the_end() -> None:
    tok = tokenizer("B")
    cut = tok.encode("a😀")[:-1]
    assert pieces(tok, [], [[token] for token in cut]) == ["a", "", "", "", REPLACEMENT]


def test_a_character_that_the_prompt_began_is_completed() -> None:
    for kind in ("B", "S"):
        tok = tokenizer(kind)
        ids = tok.encode("z語z", add_special_tokens=False)
        middle = len(ids) - 3
        assert "".join(pieces(tok, ids[:middle], [[token] for token in ids[middle:]])) == "語z"


def test_a_character_that_the_prompt_cut_is_not_shown_again() -> None:
    tok = tokenizer("B")
    prompt = tok.encode("語")[:2]
    assert pieces(tok, prompt, [tok.encode("z")]) == ["z", ""]


def test_o07_spaces_between_words_stay() -> None:
    tok = tokenizer("S")
    output = tok.encode("the cat sat")
    assert pieces(tok, tok.encode("x"), [[token] for token in output]) == [" the", " cat", " sat", ""]
    assert pieces(tok, [], [[token] for token in output]) == ["the", " cat", " sat", ""]
    assert pieces(tok, [1], [[token] for token in output]) == ["the", " cat", " sat", ""]


def test_special_tokens_are_hidden_or_shown() -> None:
    tok = tokenizer("S")
    output = [*tok.encode("the cat"), 2]
    assert "".join(pieces(tok, [], [output])) == "the cat"
    assert "".join(pieces(tok, [], [output], skip_special_tokens=False)) == "the cat</s>"


def test_wordpieces_join() -> None:
    tok = other_tokenizer(decoders.WordPiece(cleanup=False), ["run", "##ning", "the"], special=["[X]"])
    output = [3, 1, 2, 0, 3] * 20
    assert "".join(pieces(tok, [3], [[token] for token in output])) == past_prompt(
        tok, [3], output, skip=True
    )
    assert tok.token_text(1) == " run"
    assert tok.token_text(2) == "ning"


def test_metaspace_words_keep_their_spaces_behind_hidden_tokens() -> None:
    tok = other_tokenizer(decoders.Metaspace(), ["▁a", "▁b"], special=["</s>"])
    prompt = [1, *[0] * 50]
    assert "".join(pieces(tok, prompt, [[2], [1]])) == " b a"
    assert "".join(pieces(tok, [0], [[2], [1]])) == "b a"


def test_added_tokens_without_spaces_between_them() -> None:
    tok = other_tokenizer(None, ["a", "b"], special=["<x>", "<y>"])
    output = [2, 0, 1, 3, 1]
    options = {"skip_special_tokens": False, "spaces_between_special_tokens": False}
    assert "".join(pieces(tok, [], [output], skip_special_tokens=False)) == "a <x> <y> b <y>"
    assert "".join(pieces(tok, [], [[token] for token in output], **options)) == "a <x><y> b <y>"
    assert tok.decode(output, **options) == "a <x><y> b <y>"


def test_broken_bytes_without_end_are_not_held_for_ever() -> None:
    tok = tokenizer("window")
    broken = tok.encode("語")[1]
    found = pieces(tok, [], [[broken]] * 200)
    assert "".join(found) == REPLACEMENT * 200
    assert len("".join(found[:100])) > 60


def test_the_window_stays_short_whatever_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    tok, sizes = tokenizer("window"), []

    def decode(ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        sizes.append(len(ids))
        return Tokenizer.decode(tok, ids, skip_special_tokens=skip_special_tokens)

    monkeypatch.setattr(tok, "decode", decode)
    for output in (tok.encode("the cat sat on the mat " * 100), [tok.encode("語")[1]] * 500):
        pieces(tok, [], [[token] for token in output])
        assert max(sizes) < 40
