"""Finds the calls in a text; what is left is content."""

from collections.abc import Sequence

from ..answer.marks import beginning_of
from ..answer.pieces import CallStart, Content, Piece, PieceList
from .formats import ToolFormat
from .section import Calls, MalformedError, Section


class CallReader:
    """Reads the text of one answer as it comes.

    Space around calls is no content, unless content stands on both sides of it. What looked like a call and
    is none is content. A call that breaks off behind its first arguments stays as it is.
    """

    def __init__(self, form: ToolFormat, names: frozenset[str]) -> None:
        """`names` are those of the tools."""
        self._form = form
        self._calls = Calls(names)
        self._section: Section | None = None
        self._opening = ""  # what opened the section
        self._at_start = bool(form.first)
        self._space = ""  # that is content if content follows
        self._partial = ""  # the beginning of a mark
        self._has_content = False

    @property
    def complete(self) -> bool:
        """There are calls, and each is complete."""
        return self._calls.count > 0 and not self._calls.open

    def push(self, text: str) -> list[Piece]:
        """Take the next part of the text; returns what is certain now."""
        found = PieceList()
        while text:
            text = self._outside(text, found) if self._section is None else self._inside(text, found)
        return found.take()

    def finish(self) -> list[Piece]:
        """The text has ended: returns what was held."""
        found = PieceList()
        section, partial = self._section, self._partial
        if section is not None and not section.between_calls:
            partial = self._opening + section.held
        self._section, self._partial = None, ""
        self._content(partial, found)
        if not self._calls.count:
            found.add(Content(self._space))
        self._space = ""
        return found.take()

    def _outside(self, text: str, found: PieceList) -> str:
        """Returns what is left to be read."""
        if self._at_start:
            rest = text.lstrip()
            self._space += text[: len(text) - len(rest)]
            if not rest:
                return ""
            if rest[0] == self._form.first:
                self._open("")
                return rest
            text = rest
            self._at_start = False
        mark = self._form.mark
        if not mark:
            self._content(text, found)
            return ""
        text = self._partial + text
        self._partial = ""
        place = text.find(mark)
        if place >= 0:
            self._content(text[:place], found)
            self._open(mark)
            return text[place + len(mark) :]
        end = len(text) - beginning_of(mark, text)
        self._partial = text[end:]
        self._content(text[:end], found)
        return ""

    def _open(self, opening: str) -> None:
        self._section, self._opening, self._at_start = self._form.section(self._calls), opening, False

    def _inside(self, text: str, found: PieceList) -> str:
        """Returns what is left to be read."""
        section = self._section
        assert section is not None
        for place, c in enumerate(text):
            try:
                pieces = section.step(c)
            except MalformedError:
                self._section = None
                self._content(self._opening + section.held, found)
                return text[place:]
            self._add(pieces, found)
            if section.closed:
                self._section = None
                return text[place + 1 :]
        return ""

    def _add(self, pieces: Sequence[Piece], found: PieceList) -> None:
        for piece in pieces:
            if isinstance(piece, CallStart):
                self._opening = ""
            found.add(piece)

    def _content(self, text: str, found: PieceList) -> None:
        body = text.rstrip()
        if not body:
            self._space += text
            return
        leads = self._calls.count and not self._has_content
        found.add(Content(body.lstrip() if leads else self._space + body))
        self._has_content = True
        self._space = text[len(body) :]
