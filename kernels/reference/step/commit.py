"""Taking drawn tokens into the permanent rows, on the device."""

from torch import Tensor

from ..sampling.penalties import count_tokens


def commit_tokens(
    tokens: Tensor,
    rows: Tensor,
    positions: Tensor,
    last_token: Tensor,
    recent: Tensor,
    *,
    token_counts: Tensor | None = None,
    slot: Tensor | None = None,
) -> None:
    """Stores each line's token in its row: as the last token, among the recent ones, and in its counts.

    Args:
        tokens: [S] int64; -1 (no token) is stored as last token but nowhere else.
        rows: [S] int64, the permanent row of each line, -1 for padding.
        positions: [S] int64, where the token stands in its sequence.
        last_token: [num_rows] int32.
        recent: [num_rows, width] int32; position p goes to column p % width.
        token_counts: [num_slots, vocab] int32, see `Penalties`.
        slot: [num_rows] int32, the slot of each permanent row in token_counts, or -1.
    """
    real = rows >= 0
    tokens, rows, positions = tokens[real], rows[real], positions[real]
    last_token[rows] = tokens.to(last_token.dtype)
    drawn = tokens >= 0
    tokens, rows, positions = tokens[drawn], rows[drawn], positions[drawn]
    recent[rows, positions % recent.shape[1]] = tokens.to(recent.dtype)
    if token_counts is not None and slot is not None:
        count_tokens(token_counts, slot[rows], tokens)
