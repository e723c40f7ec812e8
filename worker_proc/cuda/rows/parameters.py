"""What a new row's sampling parameters are on the device, and which rules a step needs for its rows."""

import numpy as np
from numpy.typing import NDArray

from ....kernels.reference import GREEDY_BELOW
from ....protocol.sampling import SamplingParams
from ....protocol.steps import NewRow


class RowTraits:
    """By permanent row: what its draws need beyond a temperature. The host chooses graphs by it."""

    def __init__(self, num_rows: int) -> None:
        self.filtered: NDArray[np.bool_] = np.zeros(num_rows, np.bool_)  # min_p, top_k or top_p
        self.ruled: NDArray[np.bool_] = np.zeros(num_rows, np.bool_)  # token lists or penalties
        self.num_logprobs: NDArray[np.int32] = np.full(num_rows, -1, np.int32)  # -1: none asked for

    def add(self, new: NewRow, *, has_lists: bool) -> None:
        """Take over a row's."""
        row, params = new.row, new.params
        narrow = params.min_p > 0 or params.top_k > 0 or params.top_p < 1
        self.filtered[row] = narrow and params.temperature >= GREEDY_BELOW
        self.ruled[row] = has_lists or has_penalty(params)
        self.num_logprobs[row] = -1 if params.logprobs is None else params.logprobs


def has_penalty(params: SamplingParams) -> bool:
    """Whether the tokens of a row must be counted."""
    return (params.repetition_penalty, params.frequency_penalty, params.presence_penalty) != (1.0, 0.0, 0.0)


def row_values(new: NewRow) -> dict[str, int | float]:
    """The row's columns, as far as its parameters say."""
    params = new.params
    return {
        "seed": new.seed - 2**64 if new.seed >= 2**63 else new.seed,
        "choice": new.choice,
        "temperature": params.temperature,
        "min_p": params.min_p,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "temperature_last": params.temperature_last,
        "repetition": params.repetition_penalty,
        "frequency": params.frequency_penalty,
        "presence": params.presence_penalty,
        "penalty_slot": new.row if has_penalty(params) else -1,
        "prompt_len": new.prompt_len,
    }
