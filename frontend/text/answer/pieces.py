"""The pieces of an answer, in the order in which they come."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the one who asked."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text that led to the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call of a tool begins."""

    index: int  # of the call in the answer
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of a call's arguments; all of them together are a JSON object, unless the call was cut."""

    index: int
    text: str


Piece = Content | Reasoning | CallStart | CallArguments


class PieceList:
    """Collects pieces; text that belongs together becomes one piece."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []

    def add(self, piece: Piece) -> None:
        """Take the next piece."""
        last = self._pieces[-1] if self._pieces else None
        match piece, last:
            case (Content(""), _) | (Reasoning(""), _) | (CallArguments(_, ""), _):
                return
            case Content(text), Content(before):
                self._pieces[-1] = Content(before + text)
            case Reasoning(text), Reasoning(before):
                self._pieces[-1] = Reasoning(before + text)
            case CallArguments(index, text), CallArguments(same, before) if index == same:
                self._pieces[-1] = CallArguments(index, before + text)
            case _:
                self._pieces.append(piece)

    def take(self) -> list[Piece]:
        """All that was collected."""
        pieces, self._pieces = self._pieces, []
        return pieces
