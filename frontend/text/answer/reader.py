"""The whole reader of an answer: reasoning first, then content and calls."""

from ..tools.reader import CallReader
from .pieces import CallArguments, CallStart, Content, Piece, PieceList, Reasoning
from .reasoning import ReasoningReader


class AnswerReader:
    """Tells apart what the text of one choice is made of, as it comes."""

    def __init__(
        self,
        reasoning: ReasoningReader | None,
        calls: CallReader | None,
        *,
        max_calls: int | None = None,
        shows_reasoning: bool = True,
    ) -> None:
        """Without a reader there is nothing of its kind; calls beyond `max_calls` are dropped."""
        self._reasoning = reasoning
        self._calls = calls
        self._max_calls = max_calls
        self._shows_reasoning = shows_reasoning
        self._behind_reasoning = False  # space behind reasoning is dropped until text comes
        self._found = PieceList()

    @property
    def ends_with_calls(self) -> bool:
        """The answer holds calls, and each is complete."""
        return self._calls is not None and self._calls.complete

    def push(self, text: str) -> list[Piece]:
        """Take the next part of the text; returns what is certain now."""
        if self._reasoning is not None:
            text = self._reasoning.push(text, self._found)
            if self._reasoning.done:
                self._behind_reasoning = self._reasoning.found
                self._reasoning = None
        self._push(text)
        return self._take()

    def finish(self) -> list[Piece]:
        """The text has ended: returns what was held."""
        if self._reasoning is not None:
            self._push(self._reasoning.finish(self._found))
        if self._calls is not None:
            self._add(self._calls.finish())
        return self._take()

    def _take(self) -> list[Piece]:
        pieces = self._found.take()
        if self._shows_reasoning:
            return pieces
        return [piece for piece in pieces if not isinstance(piece, Reasoning)]

    def _push(self, text: str) -> None:
        if self._behind_reasoning:
            text = text.lstrip()
            self._behind_reasoning = not text
        if not text:
            return
        self._add([Content(text)] if self._calls is None else self._calls.push(text))

    def _add(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            most = self._max_calls
            if most is None or not isinstance(piece, CallStart | CallArguments) or piece.index < most:
                self._found.add(piece)
