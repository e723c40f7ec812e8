"""Reasoning in front of an answer: `<think>...</think>`, and its like."""

from dataclasses import dataclass

from .marks import beginning_of
from .pieces import PieceList, Reasoning


@dataclass(frozen=True)
class ReasoningFormat:
    """The tags around reasoning."""

    opening: str
    closing: str
    special_tokens: bool = False  # the tags are special tokens: the text must show them


FORMATS = {
    "think": ReasoningFormat("<think>", "</think>"),
    "mistral": ReasoningFormat("[THINK]", "[/THINK]", special_tokens=True),
}


def format_of_template(source: str) -> str | None:
    """The name of the format that a chat template shows; None when it shows none that is known."""
    return next((name for name, form in FORMATS.items() if form.closing in source), None)


class ReasoningReader:
    """Reads the text of one answer as it comes. Space around reasoning belongs to nothing.

    Attributes:
        done: what is still to come is no reasoning. found: there was some.
    """

    def __init__(self, form: ReasoningFormat, *, opened: bool) -> None:
        """`opened`: the prompt ends inside of reasoning, so that the answer begins there."""
        self.done = False
        self._form = form
        self._opened = opened
        self.found = False
        self._has_text = False
        self._held = ""

    def push(self, text: str, found: PieceList) -> str:
        """Take the next part of the text; returns what is no reasoning."""
        if self.done:
            return text
        text, self._held = self._held + text, ""
        if not self.found:
            opening, rest = self._form.opening, text.lstrip()
            if len(rest) < len(opening) and opening.startswith(rest):
                self._held = text
                return ""
            if rest.startswith(opening):
                text = rest.removeprefix(opening)
            elif not self._opened:
                self.done = True
                return text
            self.found = True
        return self._within(text, found)

    def finish(self, found: PieceList) -> str:
        """The text has ended; returns what was held and is no reasoning."""
        held, self._held = self._held, ""
        if self.done or not (self.found or self._opened):
            return held
        self._add(held.rstrip(), found)
        return ""

    def _within(self, text: str, found: PieceList) -> str:
        closing = self._form.closing
        place = text.find(closing)
        if place >= 0:
            self._add(text[:place].rstrip(), found)
            self.done = True
            return text[place + len(closing) :]
        end = len(text) - beginning_of(closing, text)
        body = text[:end].rstrip()
        self._held = text[len(body) :]
        self._add(body, found)
        return ""

    def _add(self, text: str, found: PieceList) -> None:
        text = text if self._has_text else text.lstrip()
        if text:
            self._has_text = True
            found.add(Reasoning(text))
