"""How long a step takes, learnt from the steps before it."""

import msgspec

_FORGET = 0.99  # how much of what was learnt remains after one more step
_TRUST = 0.1  # weight of the first guess, in steps
_EVERY = 4  # of the steps that only decode, which differ little, one in so many is learnt from


class StepWork(msgspec.Struct, frozen=True, gc=False):
    """What a step computes."""

    rows: int = 0  # that compute a token or a chunk
    chunk_tokens: int = 0  # of prompts
    context: int = 0  # tokens before those computed, all rows together
    attended: float = 0.0  # for each token of a chunk those before it, summed

    def features(self) -> tuple[float, float, float, float, float]:
        """Of like size, so that one first guess suits them all."""
        return 1.0, self.rows / 100, self.chunk_tokens / 100, self.context / 1e4, self.attended / 1e6


_FIRST_GUESS = (5e-3, 1e-3, 3e-3, 3e-4, 1.5e-4)  # seconds for one of each feature: an 8B model on one H200
_SIZE = len(_FIRST_GUESS)


class StepModel:
    """Least squares over the newest steps: a sum of costs of the step itself, rows, tokens and context.

    All in Python's own floats: a replay on another machine must plan the same.
    """

    def __init__(self) -> None:
        self._products = [[0.0] * _SIZE for _ in range(_SIZE)]
        self._targets = [0.0] * _SIZE
        self._costs: list[float] | None = list(_FIRST_GUESS)
        self._decodes = 0
        self.count = 0  # steps learnt from

    def learn(self, work: StepWork, seconds: float) -> None:
        """A step with this work took so long."""
        if not work.chunk_tokens:
            self._decodes += 1
            if self._decodes % _EVERY != 1:
                return
        self.count += 1
        features = work.features()
        for line, (row, value) in enumerate(zip(self._products, features, strict=True)):
            self._targets[line] = self._targets[line] * _FORGET + value * seconds
            for column in range(line + 1):
                row[column] = row[column] * _FORGET + value * features[column]
        self._costs = None

    def seconds(self, work: StepWork) -> float:
        """How long a step with this work will take."""
        return sum(cost * value for cost, value in zip(self._solved(), work.features(), strict=True))

    def token_seconds(self, start: int) -> float:
        """How long one more token of a chunk takes at position `start`."""
        costs = self._solved()
        return max(1e-9, costs[2] / 100 + costs[4] * start / 1e6)

    def reading(self, num_tokens: int, budget: int) -> float:
        """Seconds to read a prompt alone, in steps of at most `budget` tokens."""
        costs = self._solved()
        whole = StepWork(0, num_tokens, 0, num_tokens * num_tokens / 2)
        return self.seconds(whole) + costs[0] * max(0, -(-num_tokens // max(1, budget)) - 1)

    def _solved(self) -> list[float]:
        """The costs: none is below zero."""
        if self._costs is None:
            self._costs = [max(0.0, cost) for cost in self._solve()]
        return self._costs

    def _solve(self) -> list[float]:
        """Cholesky on the normal equations, with the first guess as a few steps more."""
        lower = [[0.0] * _SIZE for _ in range(_SIZE)]
        right = [target + _TRUST * guess for target, guess in zip(self._targets, _FIRST_GUESS, strict=True)]
        for line in range(_SIZE):
            for column in range(line + 1):
                rest = self._products[line][column] + (_TRUST if line == column else 0.0)
                rest -= sum(lower[line][k] * lower[column][k] for k in range(column))
                lower[line][column] = rest**0.5 if line == column else rest / lower[column][column]
            right[line] -= sum(lower[line][k] * right[k] for k in range(line))
            right[line] /= lower[line][line]
        for line in reversed(range(_SIZE)):
            right[line] -= sum(lower[k][line] * right[k] for k in range(line + 1, _SIZE))
            right[line] /= lower[line][line]
        return right
