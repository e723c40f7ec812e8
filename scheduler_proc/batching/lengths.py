"""How long an answer will be: an estimate from the answers before it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_KEPT = 512
_QUANTILE = 0.9
_FIRST_GUESS = 512  # tokens, before any answer has ended: rather too many
_TYPICAL = 256  # tokens, as long as no answer has ended by itself
_TYPICAL_ENDS = 16  # answers that such a guess counts for beside those that were seen

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class OutputLengths:
    """The newest output lengths, sorted when asked."""

    def __init__(self) -> None:
        self._ring: Ints = np.zeros(_KEPT, np.int64)
        self._whole: NDArray[np.bool_] = np.zeros(_KEPT, np.bool_)  # not cut short by a bound or an abort
        self._count = 0
        self._sorted: Ints | None = np.zeros(0, np.int64)

    def add(self, num_output: int, *, whole: bool) -> None:
        """An answer ended; `whole`: by itself."""
        self._ring[self._count % _KEPT] = num_output
        self._whole[self._count % _KEPT] = whole
        self._count += 1
        self._sorted = None

    def remaining(self, produced: Ints, left: Ints) -> Ints:
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

    def survival(self, produced: Ints) -> "Survival":
        """What part of all answers is longer than how many tokens; others have `produced` [n] so far."""
        return Survival.estimate(self._ring[: self._count], self._whole[: self._count], produced)


@dataclass(frozen=True, slots=True)
class Survival:
    """A falling curve: at lengths `at` [m], ascending, the share of longer answers falls to `share` [m].

    Behind the last one it falls by half every `half` tokens: what has lasted long goes on for as long in the
    mean. Source: Kaplan and Meier 1958; answers that were
    cut and those still going on count as long as they were seen, lest the first to end pass for all.
    """

    at: Floats
    share: Floats
    half: float

    @classmethod
    def estimate(cls, lengths: Ints, whole: NDArray[np.bool_], produced: Ints) -> "Survival":
        """From answers that ended, those that did so by themselves marked, and from those that go on."""
        ends = np.sort(lengths[whole])
        cut = np.sort(np.concatenate([lengths[~whole], produced]))
        seen = len(ends) - np.arange(len(ends)) + len(cut) - np.searchsorted(cut, ends)
        share = np.cumprod(1.0 - 1.0 / seen)
        last = _TYPICAL_ENDS * _TYPICAL + float(ends[-1:].sum()) * len(ends)
        half = last / (_TYPICAL_ENDS + len(ends)) * float(np.log(2))
        return cls(ends.astype(np.float64), share.astype(np.float64), half)

    def quantiles(self, produced: Ints, count: int) -> Floats:
        """[n, count] lengths, equally likely each, at which answers that have `produced` [n] will end."""
        now = self._longer(produced.astype(np.float64))
        wanted = now[:, None] * (1.0 - (np.arange(count) + 0.5) / count)
        index = np.searchsorted(-self.share, -wanted)
        if not len(self.at):
            return produced[:, None] + self.half * np.log2(now[:, None] / wanted)
        inside = self.at[np.minimum(index, len(self.at) - 1)]
        begin = np.maximum(self.at[-1], produced)[:, None]
        last = np.minimum(now, max(self.share[-1], 1e-9))[:, None]
        behind = begin + self.half * np.log2(np.maximum(last / wanted, 1.0))
        return np.where(index < len(self.at), inside, behind)

    def _longer(self, lengths: Floats) -> Floats:
        """The share of answers that are longer than `lengths` [n]."""
        index = np.searchsorted(self.at, lengths, side="right")
        steps = np.concatenate([[1.0], np.maximum(self.share, 1e-9)])
        last = self.at[-1] if len(self.at) else 0.0
        return steps[index] * np.exp2(-np.maximum(lengths - last, 0.0) / self.half)
