"""Tokens of a choice as log-probability entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.frontend.engine.logprobs import TokenLogprobs
from octavo.frontend.http.responses.logprobs import LogprobWriter
from octavo.tests.support.text import any_ids, tokenizer


def entries(ids: list[int]) -> list[TokenLogprobs]:
    return [TokenLogprobs(token, -0.5, 1, ((token, -0.5), (3, float("-inf")))) for token in ids]


@pytest.mark.parametrize("kind", ["B", "S"])
@given(data=st.data())
def test_pieces_give_the_same_entries_as_the_whole(kind: str, data: st.DataObject) -> None:
    ids = data.draw(any_ids(kind))
    cut = data.draw(st.integers(0, len(ids)))
    tok = tokenizer(kind)

    def writer() -> LogprobWriter:
        return LogprobWriter(tok, skip_special_tokens=True)

    pieces = writer()
    first, second = pieces.completion(entries(ids[:cut])), pieces.completion(entries(ids[cut:]))
    whole = writer().completion(entries(ids))
    assert first.text_offset + second.text_offset == whole.text_offset
    assert first.tokens + second.tokens == whole.tokens
    assert whole.text_offset == sorted(whole.text_offset)
    assert len(whole.tokens) == len(whole.top_logprobs) == len(ids)


def test_offsets_skip_what_is_not_shown() -> None:
    tok = tokenizer("B")
    ids = [*tok.encode("a", add_special_tokens=False), 1, *tok.encode("b", add_special_tokens=False)]
    for skip, offsets in ((True, [0, 1, 1]), (False, [0, 1, 1 + len("<|im_start|>")])):
        writer = LogprobWriter(tok, skip_special_tokens=skip)
        assert writer.completion(entries(ids)).text_offset == offsets


def test_an_infinity_becomes_a_number() -> None:
    writer = LogprobWriter(tokenizer("B"), skip_special_tokens=True)
    chat = writer.chat(entries([50]))
    assert [top.logprob for top in chat.content[0].top_logprobs] == [-0.5, -9999.0]
