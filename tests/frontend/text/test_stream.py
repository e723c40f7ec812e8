"""TextStream: detokenizer and stop strings together, as one choice sees them."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.frontend.text import TextStream, Tokenizer
from octavo.protocol.sampling import SamplingParams
from octavo.tests.support.models import make_script_model
from octavo.tests.support.text import REPLACEMENT, earliest_stop, ids_of, split, tokenizer


def run(
    output: str | list[int], *, kind: str = "B", prompt: str = "x", **params: Any
) -> tuple[list[str], TextStream]:
    """Push the output token by token until it stops; returns the pieces and the stream."""
    tok = tokenizer(kind)
    stream = TextStream(tok, tok.encode(prompt), SamplingParams(**params))
    ids = tok.encode(output, add_special_tokens=False) if isinstance(output, str) else output
    pieces = []
    for token in ids:
        pieces.append(stream.push([token]))
        if stream.stopped is not None:
            break
    pieces.append(stream.finish())
    assert stream.text == "".join(pieces)
    return pieces, stream


def test_o01_no_part_of_the_stop_string_is_shown() -> None:
    pieces, stream = run("abcDEFGz", stop=["DEFG"])
    assert pieces == ["a", "b", "c", "", "", "", "", ""]
    assert (stream.stopped, stream.num_tokens_at_stop) == ("DEFG", 7)


def test_o02_held_text_comes_at_the_end() -> None:
    assert run("abcDEFz", stop=["DEFG"])[1].text == "abcDEFz"
    pieces, stream = run("abcDE", stop=["DEFG"])
    assert (stream.text, pieces[-1], stream.stopped) == ("abcDE", "DE", None)


def test_o03_min_tokens_lets_early_stop_strings_pass() -> None:
    _, stream = run("abcabcabcabc", stop=["b"], min_tokens=6)
    assert (stream.text, stream.num_tokens_at_stop, stream.stopped) == ("abcabca", 8, "b")


@pytest.mark.parametrize(
    ("min_tokens", "text"), [(0, "a"), (1, "a"), (2, "abca"), (4, "abca"), (5, "abcabca")]
)
def test_o03_a_stop_string_counts_from_the_token_behind_min_tokens(min_tokens: int, text: str) -> None:
    assert run("abcabcabc", stop="b", min_tokens=min_tokens)[1].text == text


def test_o05_without_stop_strings_nothing_is_held() -> None:
    for stop in (None, []):
        assert run("abc", stop=stop)[0] == ["a", "b", "c", ""]


@pytest.mark.parametrize("kind", ["B", "S", "window"])
def test_o06_characters_come_whole(kind: str) -> None:
    pieces, stream = run("Q😀語z.", kind=kind)
    assert stream.text.strip() == "Q😀語z."
    assert not any(REPLACEMENT in piece for piece in pieces)


def test_o06_a_stop_string_of_several_bytes() -> None:
    pieces, stream = run("Q😀語z.", stop=["語"])
    assert "".join(pieces) == "Q😀"
    assert stream.num_tokens_at_stop == 1 + 4 + 3


def test_o07_words_stay_apart() -> None:
    pieces, stream = run("the cat sat", kind="S", stop=["sat on"])
    assert pieces == [" the", " cat", " ", "sat"]
    assert stream.text == " the cat sat"


def test_o08_the_second_string_of_a_list_stops_across_tokens() -> None:
    _, stream = run("A B C D E", stop=["zzz", "C D"])
    assert (stream.text, stream.stopped) == ("A B ", "C D")


def test_the_stop_string_may_be_part_of_the_text() -> None:
    _, stream = run("abcDEFGz", stop=["DEFG"], include_stop_str_in_output=True)
    assert stream.text == "abcDEFG"


def test_several_tokens_at_once_count_up_to_the_stop() -> None:
    tok = tokenizer("B")
    stream = TextStream(tok, [], SamplingParams(stop=["cD"]))
    assert stream.push(tok.encode("abcDEFG")) == "ab"
    assert (stream.num_tokens, stream.num_tokens_at_stop) == (4, 4)
    assert stream.push(tok.encode("z")) == stream.finish() == ""
    assert stream.text == "ab"


def test_detokenize_false_counts_tokens_and_makes_no_text() -> None:
    pieces, stream = run("abc", detokenize=False)
    assert (pieces, stream.text, stream.num_tokens) == ([""] * 4, "", 3)


def test_special_tokens_are_shown_on_request() -> None:
    output = [*tokenizer("B").encode("a"), 2]
    assert run(output)[1].text == "a"
    assert run(output, skip_special_tokens=False)[1].text == "a<|im_end|>"


def test_a_cut_character_at_the_end_shows_once() -> None:
    cut = tokenizer("B").encode("a😀")[:-1]
    assert run(cut, stop=["b"])[1].text == "a" + REPLACEMENT


@pytest.mark.parametrize("kind", ["B", "S", "window"])
def test_the_text_is_the_decoded_text_up_to_the_stop(kind: str) -> None:
    @settings(max_examples=170, deadline=None)
    @given(
        ids_of(kind),
        ids_of(kind),
        st.lists(st.sampled_from(["at s", "cat", "é", "語語", "😀", " ", "\n\n", "z.", "g"]), max_size=3),
        st.booleans(),
        st.data(),
    )
    def check(
        prompt: list[int], output: list[int], stop: list[str], include: bool, data: st.DataObject
    ) -> None:
        tok: Tokenizer = tokenizer(kind)
        stream = TextStream(tok, prompt, SamplingParams(stop=stop, include_stop_str_in_output=include))
        pieces = [stream.push(chunk) for chunk in split(output, data)] + [stream.finish()]
        whole = tok.decode(prompt + output).removeprefix(tok.decode(prompt))
        found = earliest_stop(whole, stop)
        expected = whole if found is None else whole[: found[1] if include else found[0]]
        assert "".join(pieces) == stream.text == expected
        assert (stream.stopped is None) == (found is None)

    check()


def test_load_and_stream_from_a_folder(tmp_path: Path) -> None:
    model = make_script_model(tmp_path, "abcDEFGz")
    stream = TextStream(Tokenizer.load(tmp_path), [3], SamplingParams(stop="G"))
    assert stream.push(model.script_ids) == "abcDEF"
