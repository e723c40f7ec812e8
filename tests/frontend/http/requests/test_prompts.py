"""The forms of a prompt."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.frontend.http.requests.prompts import MAX_PROMPTS, parse_prompts
from octavo.protocol.errors import InvalidRequestError

IDS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5)


def parse(value: object) -> list[str | list[int]]:
    return parse_prompts(msgspec.Raw(msgspec.json.encode(value)))


@given(
    st.one_of(
        st.text().map(lambda text: (text, [text])),
        st.lists(st.text(), min_size=1, max_size=5).map(lambda texts: (texts, texts)),
        IDS.map(lambda ids: (ids, [ids])),
        st.lists(IDS, min_size=1, max_size=5).map(lambda lists: (lists, lists)),
    )
)
def test_every_form_is_a_list_of_prompts(case: tuple[object, list[object]]) -> None:
    value, prompts = case
    assert parse(value) == prompts


def test_spaces_do_not_matter() -> None:
    assert parse_prompts(msgspec.Raw(b" [ [ 1 , 2 ] , [ 3 ] ] ")) == [[1, 2], [3]]


@pytest.mark.parametrize(
    "value", [None, 1, True, {}, [], [[]], [[1], []], [[1], 2], ["a", 1], [1, "a"], [None]]
)
def test_everything_else_is_refused(value: object) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse(value)
    assert caught.value.param == "prompt"
    assert "prompt" in caught.value.message
    assert "$" not in caught.value.message


@pytest.mark.parametrize("prompt", [[1], "x"])
def test_the_number_of_prompts_is_bounded(prompt: object) -> None:
    assert len(parse([prompt] * MAX_PROMPTS)) == MAX_PROMPTS
    with pytest.raises(InvalidRequestError, match=str(MAX_PROMPTS)):
        parse([prompt] * (MAX_PROMPTS + 1))
