"""How long an answer will be: an estimate from the answers before it."""

import numpy as np
from numpy.typing import NDArray

_KEPT = 512
_QUANTILE = 0.9
_FIRST_GUESS = 512  # tokens, before any answer has ended


class OutputLengths:
    """The newest output lengths, sorted when asked."""

    def __init__(self) -> None:
        self._ring: NDArray[np.int64] = np.zeros(_KEPT, np.int64)
        self._count = 0
        self._sorted: NDArray[np.int64] | None = np.zeros(0, np.int64)

    def add(self, num_output: int) -> None:
        """An answer ended."""
        self._ring[self._count % _KEPT] = num_output
        self._count += 1
        self._sorted = None

    def remaining(self, produced: NDArray[np.int64], left: NDArray[np.int64]) -> NDArray[np.int64]:
        """Output tokens still to come for answers that have `produced` [n] and may have `left` [n] more.

        A high quantile of the answers that were longer than what is produced; as much again when none was.
        """
        if self._sorted is None:
            self._sorted = np.sort(self._ring[: self._count])
        known = self._sorted
        if not len(known):
            return np.minimum(left, np.maximum(produced, _FIRST_GUESS))
        longer = np.searchsorted(known, produced, side="right")
        at = longer + ((len(known) - longer) * _QUANTILE).astype(np.int64)
        expected = np.where(longer < len(known), known[np.minimum(at, len(known) - 1)], 2 * produced)
        return np.minimum(left, np.maximum(expected - produced, 1))
