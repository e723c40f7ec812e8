"""Token counts, held only by rows that asked for a penalty."""

import numpy as np
import torch
from torch import Tensor

from ...kernels.reference import Penalties, count_tokens, fill_counts
from ...protocol.steps import NewRow
from ..rows import Int64s


class PenaltyPool:
    """A pool of count slots [num_slots, vocab_size] that grows when more rows need one."""

    def __init__(self, num_rows: int, vocab_size: int) -> None:
        self._counts = torch.zeros(0, vocab_size, dtype=torch.int32)
        self._free: list[int] = []
        self._slot = np.full(num_rows, -1, np.int32)
        self._repetition = np.ones(num_rows, np.float32)
        self._frequency = np.zeros(num_rows, np.float32)
        self._presence = np.zeros(num_rows, np.float32)

    def add(self, new: NewRow) -> None:
        """Give the row a slot with its tokens counted, if it has a penalty."""
        row, params = new.row, new.params
        values = (params.repetition_penalty, params.frequency_penalty, params.presence_penalty)
        self.release(row)
        if values == (1.0, 0.0, 0.0):
            return
        self._repetition[row], self._frequency[row], self._presence[row] = values
        self._slot[row] = slot = self._take()
        tokens = torch.from_numpy(np.frombuffer(new.tokens, np.int32).astype(np.int64))
        fill_counts(self._counts, slot, tokens[: new.prompt_len], tokens[new.prompt_len :])

    def release(self, row: int) -> None:
        """Give the row's slot back, if it has one."""
        if self._slot[row] >= 0:
            self._free.append(int(self._slot[row]))
            self._slot[row] = -1

    def select(self, rows: Int64s) -> Penalties | None:
        """The pool, or None when none of `rows` has a penalty."""
        if (self._slot[rows] < 0).all():
            return None
        return Penalties(
            self._counts,
            torch.from_numpy(self._slot),
            torch.from_numpy(self._repetition),
            torch.from_numpy(self._frequency),
            torch.from_numpy(self._presence),
        )

    def count(self, rows: Int64s, tokens: Tensor) -> None:
        """Count freshly drawn tokens [S] of rows [S]; negative ones are skipped."""
        count_tokens(self._counts, torch.from_numpy(self._slot[rows]), tokens)

    def _take(self) -> int:
        if not self._free:
            size = len(self._counts)
            more = max(4, size)
            self._counts = torch.cat((self._counts, self._counts.new_zeros(more, self._counts.shape[1])))
            self._free = list(range(size + more - 1, size - 1, -1))
        return self._free.pop()
