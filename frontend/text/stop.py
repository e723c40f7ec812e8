"""Stop strings: found across the borders of tokens, and their beginnings held back.

The search is an Aho-Corasick automaton (Aho and Corasick 1975): its state after each character is the
longest end of the text that begins a stop string, so the state's depth is exactly how much must be held,
and each character costs the same for one stop string or for sixty.
"""

from collections.abc import Sequence
from functools import lru_cache

# An automaton takes a few hundred bytes a character: those of long stop strings are not kept.
_KEPT_CHARACTERS = 256


class StopStrings:
    """The automaton for a set of stop strings; immutable, shared by every choice that uses the same ones.

    Attributes of each state, by number (0 is the start): `held`, how many of the last characters may still
    become a stop string; `found`, the longest stop string that ends here.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._fallback = [0]
        self.held = [0]
        self.found: list[str | None] = [None]
        for string in strings:
            self._add(string)
        self._link()
        self.first_characters = frozenset(self._next[0])

    def step(self, state: int, character: str) -> int:
        """The state after one more character."""
        while state and character not in self._next[state]:
            state = self._fallback[state]
        return self._next[state].get(character, 0)

    def _add(self, string: str) -> None:
        state = 0
        for depth, character in enumerate(string, start=1):
            following = self._next[state].get(character)
            if following is None:
                following = len(self._next)
                self._next[state][character] = following
                self._next.append({})
                self._fallback.append(0)
                self.held.append(depth)
                self.found.append(None)
            state = following
        self.found[state] = string

    def _link(self) -> None:
        """Point each state at the longest shorter end that is also a beginning, nearest states first."""
        queue = list(self._next[0].values())
        for state in queue:
            for character, following in self._next[state].items():
                self._fallback[following] = self.step(self._fallback[state], character)
                queue.append(following)
            fallback = self._fallback[state]
            if self.found[state] is None:
                self.found[state] = self.found[fallback]
            if not self._next[state]:  # a whole stop string: only a shorter end of it may go on
                self.held[state] = self.held[fallback]


def stop_strings(strings: tuple[str, ...]) -> StopStrings:
    """The automaton for these strings; small ones are kept for the next choice that names them."""
    small = sum(map(len, strings)) <= _KEPT_CHARACTERS
    return _kept_stop_strings(strings) if small else StopStrings(strings)


@lru_cache(maxsize=256)
def _kept_stop_strings(strings: tuple[str, ...]) -> StopStrings:
    return StopStrings(strings)


class StopChecker:
    """Watches the text of one choice, and releases what cannot be the beginning of a stop string.

    Attributes:
        matched: the stop string that ended the text, None as long as there is none.
    """

    def __init__(self, strings: StopStrings, *, include_stop_str: bool = False) -> None:
        self._strings = strings
        self._include_stop_str = include_stop_str
        self._state = 0
        self._held = ""
        self.matched: str | None = None

    def push(self, piece: str, *, may_stop: bool = True) -> str:
        """Take the next piece of text; returns what may be shown of it and of what was held.

        The text ends at the stop string that is complete first (the longest of those that end together). With
        `may_stop` False, stop strings that complete in this piece are plain text. Nothing is released after
        a match.
        """
        if self.matched is not None or not piece:
            return ""
        strings, state = self._strings, self._state
        if state == 0 and strings.first_characters.isdisjoint(piece):
            return piece
        for index, character in enumerate(piece):
            state = strings.step(state, character)
            if may_stop and strings.found[state] is not None:
                self.matched = strings.found[state]
                return self._end(piece[: index + 1])
        self._state = state
        return self._release(piece)

    def flush(self) -> str:
        """No more text will come: returns what was held."""
        held, self._held, self._state = self._held, "", 0
        return held

    def _release(self, piece: str) -> str:
        # A client that gets the stop string too may have its beginning at once.
        num_held = 0 if self._include_stop_str else self._strings.held[self._state]
        text = self._held + piece
        cut = len(text) - num_held
        self._held = text[cut:]
        return text[:cut]

    def _end(self, piece: str) -> str:
        text, self._held = self._held + piece, ""
        if self._include_stop_str or self.matched is None:
            return text
        return text[: len(text) - len(self.matched)]
