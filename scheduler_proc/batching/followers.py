"""Choices whose prompt another row reads already: they wait for its blocks and do not compute them too."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ..core.request import TOKEN_BYTES, Choice
from .rows import Rows

_LOOKED_AT = 8  # rows with the same beginning that are compared, the newest
_COMPARED = 1 << 17  # tokens: beyond, prompts count as different

_Entry = tuple[int, int, Choice]  # length to wait for, ticket, who


@dataclass(frozen=True, slots=True)
class Leader:
    """A row that reads what a choice would read."""

    row: int
    shared: int  # tokens that both begin with, in whole blocks


@dataclass(slots=True)
class Followers:
    """Who reads which prompt, and who waits for it, on one worker."""

    _reading: dict[bytes, list[tuple[int, int]]] = field(default_factory=dict)  # by the first block's name
    _behind: dict[int, list[_Entry]] = field(default_factory=dict)  # by row
    _woken: list[_Entry] = field(default_factory=list)  # to be queued again

    def begin(self, name: bytes, row: int, tenancy: int) -> None:
        """A row begins to read a prompt whose first block has this name."""
        rows = self._reading.setdefault(name, [])
        rows.append((row, tenancy))
        del rows[:-_LOOKED_AT]

    def leader(self, name: bytes, choice: Choice, rows: Rows, stride: int) -> Leader | None:
        """The row that will have written the longest common beginning, if one is still at it."""
        known = [at for at in self._reading.get(name, ()) if _reads(rows, *at)]
        if not known:
            self._reading.pop(name, None)
            return None
        self._reading[name] = known
        most = (choice.num_known - 1) // stride * stride
        best = max((_common(rows.at(row), choice, most) // stride * stride, row) for row, _ in known)
        shared, row = best
        return Leader(row, shared) if rows.num_written[row] < shared else None

    def wait(self, choice: Choice, leader: Leader) -> None:
        """The choice waits until the leader's row has written what both share."""
        self._behind.setdefault(leader.row, []).append((leader.shared, choice.ticket, choice))

    def written(self, row: int, length: int) -> None:
        """The first `length` tokens of a row are in the cache."""
        waiting = self._behind.get(row)
        if waiting:
            self._wake(entry for entry in waiting if entry[0] <= length)
            self._behind[row] = [entry for entry in waiting if entry[0] > length]

    def lost(self, row: int) -> None:
        """The row is another's from now on."""
        self._wake(self._behind.pop(row, ()))

    def close(self) -> None:
        """The worker lost its state."""
        for row in list(self._behind):
            self.lost(row)
        self._reading.clear()

    def take_woken(self) -> list[Choice]:
        """Those to be queued again."""
        if not self._woken:
            return []
        woken, self._woken = self._woken, []
        return _present(woken)

    @property
    def any(self) -> bool:
        """Whether a choice waits here."""
        return bool(self._behind)

    def choices(self) -> list[Choice]:
        """All that wait here or have just been woken; for checks."""
        behind = [entry for entries in self._behind.values() for entry in entries]
        return _present(behind + self._woken)

    def _wake(self, entries: Iterable[_Entry]) -> None:
        self._woken += entries


def _present(entries: list[_Entry]) -> list[Choice]:
    """Whoever ended since has another ticket."""
    return [choice for _, ticket, choice in entries if choice.ticket == ticket]


def _reads(rows: Rows, row: int, tenancy: int) -> bool:
    return int(rows.tenancy[row]) == tenancy and int(rows.num_written[row]) < int(rows.prompt_len[row])


def _common(leader: Choice, choice: Choice, most: int) -> int:
    """Tokens that the prompts of two choices begin with alike, at most `most`."""
    length = min(most, _COMPARED, leader.request.prompt_len, choice.request.prompt_len)
    first, second = leader.request.prompt, choice.request.prompt
    if first[: length * TOKEN_BYTES] == second[: length * TOKEN_BYTES]:
        return length
    one, two = (np.frombuffer(prompt, np.int32, length) for prompt in (first, second))
    return int((one != two).argmax())
