"""Pieces of a pool, handed out and taken back."""

from bisect import insort


class Spans:
    """First fit from a pool of `size` words; neighbours that come back are joined."""

    def __init__(self, size: int) -> None:
        self._free = [(0, size)] if size else []  # (start, size), in order

    def take(self, size: int) -> int | None:
        """Where a piece of `size` begins, or None when no gap is large enough."""
        for index, (start, gap) in enumerate(self._free):
            if gap >= size:
                self._free[index : index + 1] = [(start + size, gap - size)] if gap > size else []
                return start
        return None

    def give_back(self, start: int, size: int) -> None:
        """Return a piece."""
        insort(self._free, (start, size))
        joined: list[tuple[int, int]] = []
        for begin, gap in self._free:
            if joined and sum(joined[-1]) == begin:
                joined[-1] = (joined[-1][0], joined[-1][1] + gap)
            else:
                joined.append((begin, gap))
        self._free = joined
