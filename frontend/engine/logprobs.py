"""Log-probabilities of output tokens, from the columns of a `Deltas` to one object a token."""

import math
from dataclasses import dataclass

from ...protocol.columns import unpack_f32, unpack_i32
from ...protocol.replies import LogprobColumns

UNKNOWN = math.nan
"""The log-probability of a prompt's first token, which nothing precedes."""


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token and the likeliest tokens at its position."""

    token_id: int
    logprob: float  # natural logarithm, or UNKNOWN
    rank: int  # of the token, 1 for the most likely
    top: tuple[tuple[int, float], ...]  # (token id, logprob), the likeliest first


def split_logprobs(columns: LogprobColumns) -> list[TokenLogprobs | None]:
    """One entry for each token of the token column the columns belong to; None where nobody asked."""
    counts, ranks = unpack_i32(columns.counts).tolist(), unpack_i32(columns.ranks).tolist()
    ids, values = unpack_i32(columns.tokens).tolist(), unpack_f32(columns.values).tolist()
    result: list[TokenLogprobs | None] = []
    start = 0
    for count, rank in zip(counts, ranks, strict=True):
        end = start + count
        if count == 0:
            result.append(None)
        else:
            top = tuple(zip(ids[start + 1 : end], values[start + 1 : end], strict=True))
            result.append(TokenLogprobs(ids[start], values[start], rank, top))
        start = end
    return result
