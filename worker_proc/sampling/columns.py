"""Sampling parameters by permanent row, as NumPy columns that torch views without a copy."""

import numpy as np
import torch
from numpy.typing import NDArray

from ...kernels.reference import GREEDY_BELOW, SamplingColumns
from ...protocol.steps import NewRow
from ..rows import Int64s, RowTable
from .penalties import PenaltyPool
from .rules import RuleBook


class ParameterColumns:
    """What each row asked for. `select` leaves out every rule that no row of the step uses."""

    def __init__(self, table: RowTable, vocab_size: int, eos_token_ids: tuple[int, ...]) -> None:
        num_rows = len(table.num_tokens)
        self.greedy: NDArray[np.bool_] = np.zeros(num_rows, np.bool_)
        self.num_logprobs: NDArray[np.int32] = np.full(num_rows, -1, np.int32)  # -1: none asked for
        self._temperature = np.ones(num_rows, np.float32)
        self._seed = np.zeros(num_rows, np.int64)
        self._choice = np.zeros(num_rows, np.int64)
        self._min_p = np.zeros(num_rows, np.float32)
        self._top_k = np.zeros(num_rows, np.int32)
        self._top_p = np.ones(num_rows, np.float32)
        self._temperature_last = np.zeros(num_rows, np.bool_)
        self.penalties = PenaltyPool(num_rows, vocab_size)
        self._rules = RuleBook(table, eos_token_ids)

    def add(self, new: NewRow) -> None:
        """Take over a row's parameters; every column of the row is written."""
        row, params = new.row, new.params
        self.greedy[row] = params.temperature < GREEDY_BELOW
        self.num_logprobs[row] = -1 if params.logprobs is None else params.logprobs
        self._temperature[row] = params.temperature
        self._seed[row] = np.uint64(new.seed % 2**64).astype(np.int64)
        self._choice[row] = new.choice
        self._min_p[row] = params.min_p
        self._top_k[row] = params.top_k
        self._top_p[row] = params.top_p
        self._temperature_last[row] = params.temperature_last
        self.penalties.add(new)
        self._rules.add(new)

    def release(self, row: int) -> None:
        """Give back what the row holds beyond its columns."""
        self.penalties.release(row)
        self._rules.release(row)

    def select(self, rows: Int64s) -> SamplingColumns:
        """The columns a step over `rows` needs; a rule that none of them uses is None."""
        drawn = rows[~self.greedy[rows]]
        last = self._temperature_last[drawn].any()
        return SamplingColumns(
            temperature=torch.from_numpy(self._temperature),
            seed=torch.from_numpy(self._seed),
            choice=torch.from_numpy(self._choice),
            min_p=torch.from_numpy(self._min_p) if (self._min_p[drawn] > 0).any() else None,
            top_k=torch.from_numpy(self._top_k) if (self._top_k[drawn] > 0).any() else None,
            top_p=torch.from_numpy(self._top_p) if (self._top_p[drawn] < 1).any() else None,
            temperature_last=torch.from_numpy(self._temperature_last) if last else None,
            penalties=self.penalties.select(rows),
            rules=self._rules.select(rows),
        )
