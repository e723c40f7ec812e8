"""How long steps of a worker take at most: enough to tell a step that is slow from one that will never end.

The model of a step's cost is fitted to what is usual, and wrong by any factor before it has seen the like;
what is said here may be much too long, and is never much too short.
"""

_UNKNOWN = 1.0  # seconds a token, before any step was measured: slower than every device that is of use
_FADE = 0.98  # of a measured time with each later step of its size


class StepPace:
    """Times of the slowest recent steps, by the size of the step."""

    def __init__(self) -> None:
        self._slowest: dict[int, float] = {}  # seconds by the number of bits of a step's tokens

    def took(self, seconds: float, tokens: int) -> None:
        """A step of so many tokens was completed in so many seconds."""
        size = tokens.bit_length()
        self._slowest[size] = max(seconds, _FADE * self._slowest.get(size, 0.0))

    def forecast(self, tokens: int) -> float:
        """Seconds that a step of so many tokens may take, judged by steps of its size, or smaller ones."""
        size = tokens.bit_length()
        known = [other for other in self._slowest if other <= size]
        if not known:
            return _UNKNOWN * tokens
        nearest = max(known)
        return self._slowest[nearest] * 2.0 ** (size - nearest)
