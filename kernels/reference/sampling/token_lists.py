"""Rules on single tokens of single rows: bias, allowed ids, ids banned for a while, banned words.

Each op changes `logits` [R, vocab] in place. `rows` [R] names the permanent row behind each line of
logits; rules are kept by permanent row, so that nothing is repacked when the batch changes.
"""

from typing import NamedTuple

import torch
from torch import Tensor

_NEVER = float("-inf")


class TokenLists(NamedTuple):
    """One list of int32 for each permanent row, all in one pool."""

    start: Tensor
    """[num_rows] int32, where the row's list begins in the pool."""
    count: Tensor
    """[num_rows] int32, its length; 0 when the row has no such rule."""
    pool: Tensor
    """[pool_size] int32."""

    def of(self, row: int) -> slice:
        """The part of the pool that belongs to `row`."""
        start = int(self.start[row])
        return slice(start, start + int(self.count[row]))


def allow_only(logits: Tensor, rows: Tensor, allowed: TokenLists) -> None:
    """Removes all tokens but the listed ones from rows that have a list."""
    for line, row in _lines_with_rule(rows, allowed):
        tokens = allowed.pool[allowed.of(row)].long()
        kept = logits[line, tokens]
        logits[line].fill_(_NEVER)
        logits[line, tokens] = kept


def add_logit_bias(logits: Tensor, rows: Tensor, biased: TokenLists, bias: Tensor) -> None:
    """Adds `bias` [pool_size] float32, entry for entry, to the listed tokens. A list names a token once."""
    for line, row in _lines_with_rule(rows, biased):
        part = biased.of(row)
        logits[line, biased.pool[part].long()] += bias[part]


def ban_tokens(logits: Tensor, rows: Tensor, positions: Tensor, banned: TokenLists, until: Tensor) -> None:
    """Removes listed tokens while the position to be drawn lies below their `until`.

    This is min_tokens (`until` = prompt_len + min_tokens on the stop ids).

    Args:
        positions: [R] int64, the position of the token to be drawn.
        until: [pool_size] int32, entry for entry.
    """
    for line, row in _lines_with_rule(rows, banned):
        part = banned.of(row)
        tokens = banned.pool[part][until[part] > positions[line]]
        logits[line, tokens.long()] = _NEVER


def ban_words(
    logits: Tensor, rows: Tensor, positions: Tensor, words: TokenLists, recent: Tensor, prompt_len: Tensor
) -> None:
    """Removes the last token of each banned word whose other tokens were just generated.

    Args:
        positions: [R] int64, the position of the token to be drawn.
        words: a row's list holds its words back to back, each as its length n >= 1 and then its n tokens.
        recent: [num_rows, width] int32; the token at position p of a row stands in column p % width. A word
            longer than width cannot be recognized, the caller refuses it.
        prompt_len: [num_rows] int32; words are recognized in the output alone.
    """
    width = recent.shape[1]
    for line, row in _lines_with_rule(rows, words):
        position, first_output = int(positions[line]), int(prompt_len[row])
        entries = words.pool[words.of(row)].tolist()
        at = 0
        while at < len(entries):
            length = entries[at]
            word = entries[at + 1 : at + 1 + length]
            at += 1 + length
            start = position - (length - 1)
            if start < first_output:
                continue
            tail = [int(recent[row, p % width]) for p in range(start, position)]
            if tail == word[:-1]:
                logits[line, word[-1]] = _NEVER


def _lines_with_rule(rows: Tensor, lists: TokenLists) -> list[tuple[int, int]]:
    """The (line of logits, permanent row) pairs whose list is not empty."""
    lines = lists.count[rows].nonzero().squeeze(1)
    return list(zip(lines.tolist(), rows[lines].tolist(), strict=True))


def make_token_lists(lists: list[list[int]], *, device: torch.device | str = "cpu") -> TokenLists:
    """Packs one list of ids for each permanent row."""
    counts = [len(ids) for ids in lists]
    starts = [sum(counts[:row]) for row in range(len(lists))]
    pool = [token for ids in lists for token in ids]
    return TokenLists(*(torch.tensor(x, dtype=torch.int32, device=device) for x in (starts, counts, pool)))
