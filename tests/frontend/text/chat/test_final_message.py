"""Leaving the last message open."""

from typing import Any

import pytest

from octavo.frontend.text.chat.final_message import cut_at_mark, mark_final_message
from octavo.protocol.errors import InvalidRequestError


def continued(content: Any, template: str) -> str:
    messages = [{"role": "assistant", "content": content}]
    text = mark_final_message(messages)
    shown = messages[0]["content"]
    return cut_at_mark(template.replace("TEXT", shown if isinstance(shown, str) else shown[-1]["text"]), text)


@pytest.mark.parametrize("content", ["Sure, ", [{"text": "other"}, {"text": "Sure, "}]])
def test_the_prompt_ends_with_the_text(content: Any) -> None:
    assert continued(content, "<a>TEXT</a>") == "<a>Sure, "


def test_a_template_that_strips_the_text_strips_it_here() -> None:
    messages = [{"role": "assistant", "content": "Sure, "}]
    text = mark_final_message(messages)
    assert cut_at_mark("<a>" + messages[0]["content"].strip() + "</a>", text) == "<a>Sure,"


def test_a_text_shown_twice_is_cut_at_the_last_place() -> None:
    assert continued("Sure", "<b>TEXT</b><a>TEXT</a>") == "<b>Sure</b><a>Sure"


def test_a_message_without_text_cannot_be_continued() -> None:
    for message in ({"role": "assistant"}, {"role": "assistant", "content": []}):
        with pytest.raises(InvalidRequestError, match="has no text"):
            mark_final_message([message])


def test_a_template_that_hides_or_changes_the_text_cannot_continue_it() -> None:
    for template in ("<a></a>", "<a>" + "text changed" + "</a>"):
        with pytest.raises(InvalidRequestError, match="does not show it"):
            continued("Sure", template)
