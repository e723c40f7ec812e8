"""The text of one choice, from token ids to what a client may see."""

from collections.abc import Sequence

from ...protocol.sampling import SamplingParams
from .detokenizer import Detokenizer
from .stop import StopChecker, stop_strings
from .tokenizer import Tokenizer


class TextStream:
    """Detokenizer and stop strings of one choice.

    A token that ended the choice (eos or a stop token) is no text: its sender leaves it out of `push`.

    Attributes:
        num_tokens: how many tokens were pushed.
        stopped: the stop string that ended the text, None as long as there is none.
        num_tokens_at_stop: how many tokens it took to complete that stop string.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int], params: SamplingParams) -> None:
        self.num_tokens = 0
        self.num_tokens_at_stop: int | None = None
        self._pieces: list[str] = []
        self._min_tokens = params.min_tokens
        self._detokenizer: Detokenizer | None = None
        self._checker: StopChecker | None = None
        if not params.detokenize:
            return
        self._detokenizer = Detokenizer.create(
            tokenizer,
            prompt_ids,
            skip_special_tokens=params.skip_special_tokens,
            spaces_between_special_tokens=params.spaces_between_special_tokens,
        )
        if params.stop:
            strings = stop_strings((params.stop,) if isinstance(params.stop, str) else tuple(params.stop))
            self._checker = StopChecker(strings, include_stop_str=params.include_stop_str_in_output)

    @property
    def text(self) -> str:
        """All text released so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def stopped(self) -> str | None:
        return self._checker.matched if self._checker is not None else None

    def push(self, token_ids: Sequence[int]) -> str:
        """Take the next tokens; returns the text they release, possibly empty.

        A stop string that completes within the first `min_tokens` tokens is plain text. Tokens behind a stop
        string are ignored.
        """
        if self._detokenizer is None:
            self.num_tokens += len(token_ids)
            return ""
        if self._checker is None:
            self.num_tokens += len(token_ids)
            piece = self._detokenizer.push(token_ids)
        else:
            piece = self._push_checked(self._detokenizer, self._checker, token_ids)
        if piece:
            self._pieces.append(piece)
        return piece

    def finish(self) -> str:
        """The choice has ended: returns the text that was still held, empty after a stop string."""
        if self._detokenizer is None:
            return ""
        piece = self._detokenizer.flush()
        if self._checker is not None:
            piece = self._check(self._checker, piece) + self._checker.flush()
        if piece:
            self._pieces.append(piece)
        return piece

    def _push_checked(self, detokenizer: Detokenizer, checker: StopChecker, token_ids: Sequence[int]) -> str:
        released = []
        for token in token_ids:
            if checker.matched is not None:
                break
            self.num_tokens += 1
            released.append(self._check(checker, detokenizer.push((token,))))
        return "".join(released)

    def _check(self, checker: StopChecker, piece: str) -> str:
        if checker.matched is not None:
            return ""
        released = checker.push(piece, may_stop=self.num_tokens > self._min_tokens)
        if checker.matched is not None:
            self.num_tokens_at_stop = self.num_tokens
        return released
