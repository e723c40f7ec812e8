"""The part of an answer that holds calls, as one format writes it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from ..answer.pieces import Piece


class MalformedError(Exception):
    """The text goes on in a way that the format does not have. Never leaves this package."""


class Calls:
    """The calls of an answer, counted.

    Attributes:
        count: calls that began. open: the last of them is not complete.
    """

    def __init__(self, names: frozenset[str]) -> None:
        """`names` are those of the tools."""
        self.names = names
        self.count = 0
        self.open = False

    def begin(self) -> int:
        """The index of a call that begins now."""
        self.count += 1
        self.open = True
        return self.count - 1

    def end(self) -> None:
        """The arguments of the call are complete."""
        self.open = False


class Section(ABC):
    """Reads calls, a character at a time, from the character on that opened the section."""

    @property
    @abstractmethod
    def held(self) -> str:
        """What was read and belongs to no call: it is plain text should the section break off."""

    @property
    @abstractmethod
    def between_calls(self) -> bool:
        """No call has begun that is not complete: what is held is only form should the answer end."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """The section ended with the last character."""

    @abstractmethod
    def step(self, c: str) -> Sequence[Piece]:
        """Take a character. Raises MalformedError for one that does not fit, and then did not take it."""


MakeSection = Callable[[Calls], Section]
