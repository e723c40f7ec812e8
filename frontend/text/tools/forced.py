"""Calls that a grammar made a model write: a list of them, or the arguments of one."""

from collections.abc import Sequence

from ..answer.pieces import Piece
from .json_call import JsonArguments
from .mistral import MistralList
from .section import Calls, MalformedError, Section

ForcedCalls = MistralList


class ForcedCall(Section):
    """The arguments of a tool that is known."""

    def __init__(self, calls: Calls, name: str) -> None:
        self._arguments = JsonArguments(calls, name, "")

    @property
    def held(self) -> str:
        return self._arguments.held

    @property
    def between_calls(self) -> bool:
        return self._arguments.done

    @property
    def closed(self) -> bool:
        return self._arguments.done

    def step(self, c: str) -> Sequence[Piece]:
        if self.closed:
            raise MalformedError
        return self._arguments.step(c)
