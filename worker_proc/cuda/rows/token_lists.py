"""Token lists of rows in the device's pool: what may, may not, or should rather be drawn."""

import numpy as np

from ....kernels.reference import TokenLists, TokenRules
from ....protocol.steps import NewRow
from ...sampling.rules import RowRules, read_rules
from .columns import RECENT, RowColumns
from .spans import Spans
from .staging import Staging

_NAMES = ("allowed", "biased", "banned", "words")


class RowFaultError(Exception):
    """One row cannot be served; the others can."""


class ListPool:
    """Hands out the pool's entries, and writes lists there as changes of a step."""

    def __init__(self, columns: RowColumns, eos_token_ids: tuple[int, ...]) -> None:
        self._columns = columns
        self._eos_token_ids = eos_token_ids
        self._spans = Spans(len(columns.pool))
        self._held: dict[int, list[tuple[int, int]]] = {}  # row: (start, size) of its lists

    def add(self, new: NewRow, staging: Staging) -> dict[str, int]:
        """Write a row's lists; returns the row's fields that say where they are.

        Raises RowFaultError when the pool is full, or a banned word is longer than what a row remembers.
        """
        rules = read_rules(new, self._eos_token_ids)
        if any(len(word) // 4 > RECENT for word in new.bad_words):
            raise RowFaultError(f"a banned word has more than {RECENT} tokens")
        fields = {}
        for name in _NAMES:
            ids: list[int] = getattr(rules, name)
            fields[f"{name}_count"] = len(ids)
            fields[f"{name}_start"] = start = self._take(new.row, len(ids)) if ids else 0
            if ids:
                self._write(start, ids, self._beside(name, rules), staging)
        return fields

    def release(self, row: int) -> None:
        """Give back what the row holds."""
        for start, size in self._held.pop(row, ()):
            self._spans.give_back(start, size)

    def rules(self) -> TokenRules:
        """All lists as the kernels take them."""
        columns = self._columns

        def lists(name: str) -> TokenLists:
            return TokenLists(columns[f"{name}_start"], columns[f"{name}_count"], columns.pool)

        return TokenRules(
            allowed=lists("allowed"),
            biased=lists("biased"),
            bias=columns.beside_floats,
            banned=lists("banned"),
            banned_until=columns.beside,
            words=lists("words"),
            recent=columns.recent,
            prompt_len=columns["prompt_len"],
        )

    def _take(self, row: int, size: int) -> int:
        start = self._spans.take(size)
        if start is None:
            self.release(row)
            raise RowFaultError(f"the running requests' token lists leave no room for {size} more entries")
        self._held.setdefault(row, []).append((start, size))
        return start

    def _write(self, start: int, ids: list[int], beside: np.ndarray | None, staging: Staging) -> None:
        at, beside_at = self._columns.pool_of(start, len(ids))
        staging.change(at, np.array(ids, np.int32))
        if beside is not None:
            staging.change(beside_at, beside)

    @staticmethod
    def _beside(name: str, rules: RowRules) -> np.ndarray | None:
        if name == "biased":
            return np.array(rules.bias, np.float32).view(np.int32)
        if name == "banned":
            return np.full(len(rules.banned), rules.banned_until, np.int32)
        return None
