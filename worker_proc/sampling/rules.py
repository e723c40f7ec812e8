"""Rules on single tokens by permanent row: allowed ids, bias, min_tokens, banned words."""

from typing import NamedTuple

import numpy as np
import torch

from ...kernels.reference import TokenLists, TokenRules
from ...protocol.steps import NewRow
from ..rows import Int64s, RowTable

_NAMES = ("allowed", "biased", "banned", "words")


class RowRules(NamedTuple):
    """The lists of one row, as `TokenLists` holds them; empty where it has no such rule."""

    allowed: list[int]
    biased: list[int]
    bias: list[float]
    banned: list[int]
    banned_until: int
    words: list[int]


def read_rules(new: NewRow, eos_token_ids: tuple[int, ...]) -> RowRules:
    """The rules that a row's parameters ask for; `eos_token_ids` end a choice unless it ignores them."""
    params = new.params
    bias = params.logit_bias or {}
    eos = () if params.ignore_eos else eos_token_ids
    words = [np.frombuffer(word, np.int32).tolist() for word in new.bad_words]
    return RowRules(
        allowed=params.allowed_token_ids or [],
        biased=list(bias),
        bias=list(bias.values()),
        banned=sorted({*eos, *(params.stop_token_ids or ())}) if params.min_tokens else [],
        banned_until=new.prompt_len + params.min_tokens,
        words=[entry for word in words for entry in (len(word), *word)],
    )


class RuleBook:
    """Lists of token ids by row. They are packed anew only when a row with a rule comes or goes."""

    def __init__(self, table: RowTable, eos_token_ids: tuple[int, ...]) -> None:
        self._table = table
        self._eos_token_ids = eos_token_ids
        self._lists: dict[str, dict[int, list[int]]] = {name: {} for name in _NAMES}
        self._bias: dict[int, list[float]] = {}
        self._until: dict[int, int] = {}  # position from which the row's banned tokens may be drawn
        self._with_rules = np.zeros(len(table.num_tokens), np.bool_)
        self._packed: TokenRules | None = None

    def add(self, new: NewRow) -> None:
        """Take over a row's rules."""
        row, rules = new.row, read_rules(new, self._eos_token_ids)
        self.release(row)
        for name in _NAMES:
            if ids := getattr(rules, name):
                self._lists[name][row] = ids
        if any(row in lists for lists in self._lists.values()):
            self._bias[row], self._until[row] = rules.bias, rules.banned_until
            self._with_rules[row] = True
            self._packed = None

    def release(self, row: int) -> None:
        """Forget a row's rules, if it has any."""
        if self._with_rules[row]:
            self._with_rules[row] = False
            self._packed = None
            for lists in self._lists.values():
                lists.pop(row, None)
            self._bias.pop(row, None)
            self._until.pop(row, None)

    def select(self, rows: Int64s) -> TokenRules | None:
        """The rules, or None when none of `rows` has one."""
        if not self._with_rules[rows].any():
            return None
        if self._packed is None:
            self._packed = self._pack()
        return self._packed

    def _pack(self) -> TokenRules:
        lists = {name: self._pack_lists(by_row) for name, by_row in self._lists.items()}
        banned = self._lists["banned"]
        until = [self._until[row] for row in sorted(banned) for _ in banned[row]]
        bias = [value for row in sorted(self._bias) for value in self._bias[row]]
        return TokenRules(
            allowed=lists["allowed"],
            biased=lists["biased"],
            bias=torch.tensor(bias, dtype=torch.float32),
            banned=lists["banned"],
            banned_until=torch.tensor(until, dtype=torch.int32),
            words=lists["words"],
            recent=torch.from_numpy(self._table.tokens),  # one column for each position, so no wrapping
            prompt_len=torch.from_numpy(self._table.prompt_len),
        )

    def _pack_lists(self, by_row: dict[int, list[int]]) -> TokenLists | None:
        if not by_row:
            return None
        start, count = (np.zeros(len(self._with_rules), np.int32) for _ in range(2))
        pool: list[int] = []
        for row in sorted(by_row):
            start[row], count[row] = len(pool), len(by_row[row])
            pool += by_row[row]
        return TokenLists(
            torch.from_numpy(start), torch.from_numpy(count), torch.tensor(pool, dtype=torch.int32)
        )
