"""Stop strings: what is found, what is held back, what is released."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.frontend.text import StopChecker, StopStrings
from octavo.frontend.text.stop import stop_strings
from octavo.tests.support.text import earliest_stop

SHORT = st.text("ab", min_size=1, max_size=4)


def check(
    strings: Sequence[str], chunks: Sequence[str], *, include: bool = False
) -> tuple[list[str], StopChecker]:
    checker = StopChecker(StopStrings(strings), include_stop_str=include)
    return [*(checker.push(chunk) for chunk in chunks), checker.flush()], checker


@settings(max_examples=500, deadline=None)
@given(
    st.lists(SHORT, min_size=1, max_size=5), st.lists(st.text("abc", max_size=3), max_size=12), st.booleans()
)
def test_the_text_ends_at_the_stop_string_that_is_complete_first(
    strings: list[str], chunks: list[str], include: bool
) -> None:
    text = "".join(chunks)
    released, checker = check(strings, chunks, include=include)
    stop = earliest_stop(text, strings)
    if stop is None:
        assert ("".join(released), checker.matched) == (text, None)
    else:
        start, end = stop
        assert "".join(released) == text[: end if include else start]
        assert checker.matched == text[start:end]


@settings(max_examples=300, deadline=None)
@given(st.lists(SHORT, min_size=1, max_size=4), st.text("abc", max_size=12))
def test_exactly_the_beginning_of_a_stop_string_is_held(strings: list[str], text: str) -> None:
    checker = StopChecker(StopStrings(strings))
    shown = ""
    for length, character in enumerate(text, start=1):
        shown += checker.push(character)
        if checker.matched is not None:
            return
        seen = text[:length]
        longest = max(
            size
            for size in range(length + 1)
            if any(len(string) > size and string.startswith(seen[length - size :]) for string in strings)
        )
        assert shown == seen[: length - longest]


def test_a_stop_string_in_the_middle_of_a_piece_cuts_it() -> None:
    released, checker = check(["STOP"], ["all good STOP and more", "never"])
    assert released == ["all good ", "", ""]
    assert checker.matched == "STOP"


def test_with_the_stop_string_included_nothing_is_held() -> None:
    released, _ = check(["DEFG"], ["abcD", "E", "F", "Gz"], include=True)
    assert released == ["abcD", "E", "F", "G", ""]


def test_o01_the_beginning_of_a_stop_string_is_not_shown() -> None:
    released, checker = check(["DEFG"], list("abcDEFGz"))
    assert released == ["a", "b", "c", "", "", "", "", "", ""]
    assert checker.matched == "DEFG"


def test_o02_held_text_is_released_when_it_turns_out_harmless() -> None:
    assert check(["DEFG"], list("abcDEFz"))[0] == ["a", "b", "c", "", "", "", "DEFz", ""]
    assert check(["DEFG"], list("abcDE"))[0] == ["a", "b", "c", "", "", "DE"]


def test_o03_a_stop_string_that_may_not_stop_yet_is_text_and_does_not_count_later() -> None:
    checker = StopChecker(StopStrings(["b"]))
    early = [checker.push(letter, may_stop=False) for letter in "abcabc"]
    late = [checker.push(letter) for letter in "ab"]
    assert early == ["a", "b", "c", "a", "b", "c"]
    assert late == ["a", ""]
    assert checker.matched == "b"


def test_o03_a_stop_string_may_begin_before_it_may_stop() -> None:
    checker = StopChecker(StopStrings(["bc"]))
    assert [checker.push("ab", may_stop=False), checker.push("c")] == ["a", ""]
    assert checker.matched == "bc"


@pytest.mark.parametrize("strings", [["zzz", "C D"], ["C D", "zzz"], ["D", "C D"]])
def test_o08_any_of_the_strings_stops_across_pieces(strings: list[str]) -> None:
    released, checker = check(strings, ["A", " B", " C", " D", " E"])
    assert "".join(released) == "A B "
    assert checker.matched == "C D"


def test_long_stop_strings_cost_no_more_than_their_length() -> None:
    strings = [chr(65 + index) * 4000 for index in range(8)]
    released, checker = check(strings, ["A" * 3999, "B", "B" * 3999])
    assert "".join(released) == "A" * 3999
    assert checker.matched == "B" * 4000


def test_equal_strings_share_an_automaton_unless_they_are_long() -> None:
    assert stop_strings(("a", "b")) is stop_strings(("a", "b"))
    assert stop_strings(("a" * 300,)) is not stop_strings(("a" * 300,))
