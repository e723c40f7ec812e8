"""Leaving the last message of a chat open, so that the model goes on with it.

Templates close every message. A mark put behind the last message's text shows where the template wrote it,
and the prompt is cut there.
"""

from typing import Any

from ....protocol.errors import InvalidRequestError

_MARK = "\ue000FINAL-MESSAGE-ENDS\ue000"
# The space behind the mark tells whether the template keeps spaces at the end of a message.
_MARK_AND_SPACE = _MARK + " "


def mark_final_message(messages: list[dict[str, Any]]) -> str:
    """Put the mark behind the text of the last message, in place; returns that text.

    Raises InvalidRequestError when the message has no text.
    """
    content = messages[-1].get("content")
    if isinstance(content, str):
        messages[-1]["content"] = content + _MARK_AND_SPACE
        return content
    for part in reversed(content or []):
        text: str = part["text"]
        part["text"] = text + _MARK_AND_SPACE
        return text
    raise _cannot_continue("it has no text")


def cut_at_mark(rendered: str, text: str) -> str:
    """The prompt up to the mark. Raises InvalidRequestError if the template changed the message's `text`."""
    place = rendered.rfind(_MARK)
    if place < 0 or text.strip() not in rendered:
        raise _cannot_continue("the chat template does not show it as it is")
    # A template may show the text more than once: the last place counts, the mark is nowhere left.
    cut = rendered[:place].replace(_MARK_AND_SPACE, "").replace(_MARK, "")
    return cut if rendered.startswith(_MARK_AND_SPACE, place) else cut.rstrip()


def _cannot_continue(reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the final message cannot be continued: {reason}", param="continue_final_message"
    )
