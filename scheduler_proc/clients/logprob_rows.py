"""Log-probabilities of a step's tokens, cut so that each client gets those of its own."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...protocol.errors import ProtocolError
from ...protocol.replies import LogprobColumns


@dataclass(frozen=True, slots=True)
class LogprobRows:
    """The columns of `LogprobColumns` as arrays: T tokens, E entries."""

    counts: NDArray[np.int32]  # [T] entries of each token
    tokens: NDArray[np.int32]  # [E]
    values: NDArray[np.float32]  # [E]
    ranks: NDArray[np.int32]  # [T]

    @classmethod
    def read(cls, columns: LogprobColumns, num_tokens: int) -> "LogprobRows":
        """Raises ProtocolError when the columns do not belong to `num_tokens` tokens."""
        try:
            rows = cls(
                np.frombuffer(columns.counts, np.int32),
                np.frombuffer(columns.tokens, np.int32),
                np.frombuffer(columns.values, np.float32),
                np.frombuffer(columns.ranks, np.int32),
            )
        except ValueError as error:
            raise ProtocolError(f"a logprob column is cut: {error}") from error
        entries = int(rows.counts.sum())
        if not (len(rows.counts) == len(rows.ranks) == num_tokens) or len(rows.tokens) != entries:
            raise ProtocolError(f"logprob columns of {len(rows.counts)} tokens for {num_tokens}")
        if len(rows.values) != entries:
            raise ProtocolError(f"{len(rows.values)} logprobs for {entries} tokens")
        return rows

    @classmethod
    def none(cls, num_tokens: int) -> "LogprobRows":
        """Tokens without logprobs."""
        zeros = np.zeros(num_tokens, np.int32)
        return cls(zeros, np.zeros(0, np.int32), np.zeros(0, np.float32), zeros)

    @classmethod
    def join(cls, parts: "list[LogprobRows]") -> LogprobColumns:
        """The columns of all parts, one behind the other."""
        joined = cls(
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.tokens for part in parts]),
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.ranks for part in parts]),
        )
        columns = (joined.counts, joined.tokens, joined.values, joined.ranks)
        return LogprobColumns(*(column.tobytes() for column in columns))

    def select(self, at: NDArray[np.int64]) -> "LogprobRows":
        """The tokens at ascending indexes `at` [n]."""
        chosen = np.zeros(len(self.counts), np.bool_)
        chosen[at] = True
        entries = np.repeat(chosen, self.counts)
        return LogprobRows(self.counts[at], self.tokens[entries], self.values[entries], self.ranks[at])
