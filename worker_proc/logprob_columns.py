"""Building the logprob columns of a step result, token by token."""

from collections.abc import Sequence

from ..protocol.columns import pack_f32, pack_i32
from ..protocol.replies import LogprobColumns

FLOOR = -1e30  # JSON has no infinities; a removed token is this unlikely


class LogprobWriter:
    """Collects what each token of a step reports, in the order of the token column."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._tokens: list[int] = []
        self._values: list[float] = []
        self._ranks: list[int] = []

    def skip(self) -> None:
        """A token whose row did not ask for logprobs."""
        self._counts.append(0)
        self._ranks.append(0)

    def add(self, token: int, value: float, rank: int, top: Sequence[int], values: Sequence[float]) -> None:
        """A token with the most likely ones beside it, by falling probability."""
        self._counts.append(1 + len(top))
        self._ranks.append(rank)
        self._tokens += [token, *top]
        self._values += [max(x, FLOOR) for x in (value, *values)]

    def columns(self) -> LogprobColumns | None:
        """The columns, or None when no token has logprobs."""
        if not self._values:
            return None
        return LogprobColumns(
            counts=pack_i32(self._counts),
            tokens=pack_i32(self._tokens),
            values=pack_f32(self._values),
            ranks=pack_i32(self._ranks),
        )
