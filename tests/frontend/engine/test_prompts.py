"""Prompts in every form, and what is refused."""

import pytest

from octavo.frontend.engine.prompts import encode_prompt, is_batch
from octavo.protocol.errors import InvalidRequestError
from octavo.tests.support.text import tokenizer


def test_forms_of_one_prompt() -> None:
    tok = tokenizer("B")
    ids = tok.encode("abc")
    for prompt in ("abc", {"prompt": "abc"}, {"prompt": "abc", "prompt_token_ids": ids}):
        encoded = encode_prompt(tok, prompt)
        assert (encoded.text, encoded.token_ids) == ("abc", ids)
    for prompt in (ids, tuple(ids), {"prompt_token_ids": ids}):
        encoded = encode_prompt(None, prompt)  # type: ignore[arg-type]
        assert (encoded.text, encoded.token_ids) == (None, ids)
    assert encode_prompt(tok, {"prompt": "abc", "cache_salt": "mine"}).cache_salt == "mine"


@pytest.mark.parametrize(
    "prompt",
    [None, 5, b"abc", [1, "a"], [True], [-1], [2**31], {}, {"prompt": 5}, {"text": "abc"}, {"cache_salt": 1}],
)
def test_other_forms_are_refused(prompt: object) -> None:
    with pytest.raises(InvalidRequestError):
        encode_prompt(tokenizer("B"), prompt)  # type: ignore[arg-type]


def test_text_needs_a_tokenizer() -> None:
    with pytest.raises(InvalidRequestError, match="no tokenizer"):
        encode_prompt(None, "abc")


def test_a_list_of_token_ids_is_one_prompt() -> None:
    assert not is_batch("abc") and not is_batch([1, 2]) and not is_batch({"prompt": "abc"})
    assert is_batch(["abc"]) and is_batch([[1, 2]]) and is_batch([{"prompt": "abc"}]) and is_batch([])
