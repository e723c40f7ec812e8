"""Rows that draw their tokens together, step after step, with all that stays the same meanwhile."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..clients.deltas import Recipients

if TYPE_CHECKING:
    from .rows import Rows

Ints = NDArray[np.int64]
Int32s = NDArray[np.int32]


class Cohort:
    """What a step's n rows bring along, gathered once and used as long as each keeps its choice."""

    __slots__ = (
        "fresh",
        "max_length",
        "min_length",
        "name",
        "prompt_end",
        "recipients",
        "stop_sets",
        "stops",
        "tenant",
        "version",
    )

    def __init__(self, rows: "Rows", at: Ints, name: bytes) -> None:
        """`at` [n] are the rows; `name` and the present version of `rows` tell this cohort from others."""
        self.name, self.version = name, rows.version
        self.max_length: Ints = rows.max_length[at]
        self.min_length: Ints = rows.min_length[at]
        self.prompt_end: Ints = rows.prompt_len[at] + 1  # num_known behind the first output token
        self.tenant: Ints = rows.tenant[at]
        # [n] each: tokens that end a choice. A column in which no row has one is left out.
        self.stops: list[Int32s] = [
            stops for column in rows.stops if (stops := column[at]).max(initial=-1) >= 0
        ]
        # Those with more of them than there are columns, by index.
        self.stop_sets = {
            index: frozenset(rows.at(int(at[index])).request.stops)
            for index in rows.many_stops[at].nonzero()[0].tolist()
        }
        self.fresh = bool(rows.fresh[at].any())  # a choice has drawn no token yet
        self.recipients = Recipients.split(
            rows.client[at], rows.request[at], rows.attempt[at], rows.choice[at]
        )
