"""Matchers by permanent row: which tokens a row may draw next, and what became of it."""

from concurrent.futures import Future

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from ...protocol.columns import unpack_i32
from ...protocol.steps import NewRow
from .compiler import GrammarCompiler, GuideError


class Guides:
    """The rows that have a grammar.

    A row is guided from `add` to `release`. Between two draws it is told what it drew: a row that comes with
    output, after a preemption or a restart, has read that before its first mask.

    Attributes:
        end_token: what a row draws when its grammar allows no more.
    """

    def __init__(self, tokenizer_path: str, vocab_size: int, eos_token_ids: tuple[int, ...]) -> None:
        self._compiler = GrammarCompiler(tokenizer_path, vocab_size, eos_token_ids)
        self._vocab_size = vocab_size
        self._rows: dict[int, Future[LLMatcher]] = {}
        self.num_words = -(-vocab_size // 32)
        self.end_token = eos_token_ids[0] if eos_token_ids else -1

    def __contains__(self, row: int) -> bool:
        return row in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, new: NewRow) -> None:
        """A row was taken: begin to compile its grammar, if it has one."""
        wanted = new.params.structured_outputs
        if wanted is None:
            self._rows.pop(new.row, None)
        else:
            output = unpack_i32(new.tokens)[new.prompt_len :].tolist()
            self._rows[new.row] = self._compiler.start(wanted, output)

    def release(self, row: int) -> None:
        """A row became free."""
        self._rows.pop(row, None)

    def fill(self, row: int, mask: NDArray[np.int32]) -> bool:
        """Write which tokens the row may draw next, a bit each; True when only its end is left.

        Waits for the row's matcher. `mask` is [num_words], contiguous. Raises GuideError when there is none.
        """
        matcher = self._rows[row].result()
        if not matcher.is_error():
            matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if matcher.is_error():
            raise GuideError(f"the grammar came to no end: {matcher.get_error().splitlines()[0]}")
        return bool(matcher.is_stopped())

    def advance(self, row: int, token: int) -> None:
        """The row drew `token`. One that its grammar does not allow is an error of its next mask."""
        matcher = self._rows[row].result()
        if not matcher.is_stopped():
            matcher.consume_token(token)
