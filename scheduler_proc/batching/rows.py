"""What changes every step, as columns indexed by row.

Lengths of a row, in tokens from position 0 on:

    num_written  <=  num_computed  <=  length          num_written   computed by steps whose results arrived
                     num_known     <=  length          num_computed  computed by these and by steps in flight
                                                       num_known     values known: prompt and output
                                                       length        num_known and the tokens being drawn

A row is ready for a step when num_computed < length, and draws a token when the step brings num_computed to
length. While it reads its prompt, length == num_known; while it decodes, length == num_computed + 1 between
plans. At most one token a step in flight is being drawn, and length never passes max_length.
"""

import heapq

import numpy as np
from numpy.typing import NDArray

from ..core.request import Choice, State
from .cohort import Cohort

Ints = NDArray[np.int64]
Int32s = NDArray[np.int32]

_TAIL = 64  # output tokens of a row kept here before they move to the choice
_MAX_STOPS = 16  # stop tokens of a row compared in one vector operation; more are looked up one by one


class Rows:
    """The rows of one worker."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.choices: list[Choice | None] = [None] * count
        self._free = list(range(count))  # a heap: low rows first
        self._tenancies = 0
        self.version = 0  # counts changes of who has which row
        self._cohort: Cohort | None = None  # the one that drew last

        self.tenancy: Ints = np.zeros(count, np.int64)  # 0: free
        self.num_written: Ints = np.zeros(count, np.int64)
        self.num_computed: Ints = np.zeros(count, np.int64)
        self.num_known: Ints = np.zeros(count, np.int64)
        self.length: Ints = np.zeros(count, np.int64)
        self.max_length: Ints = np.zeros(count, np.int64)
        self.prompt_len: Ints = np.zeros(count, np.int64)
        self.min_length: Ints = np.zeros(count, np.int64)  # stop tokens do not end a choice before it
        self.keep: Ints = np.zeros(count, np.int64)  # windows give up nothing that is read from here on

        self.client: Ints = np.zeros(count, np.int64)
        self.request: Ints = np.zeros(count, np.int64)
        self.tenant: Ints = np.zeros(count, np.int64)
        self.attempt: Int32s = np.zeros(count, np.int32)
        self.choice: Int32s = np.zeros(count, np.int32)
        self.fresh: NDArray[np.bool_] = np.zeros(count, np.bool_)  # no token of this choice was drawn yet
        self.stops: Int32s = np.full((1, count), -1, np.int32)  # [width, rows]: stop tokens, -1 for none
        self.many_stops: NDArray[np.bool_] = np.zeros(count, np.bool_)

        self.tail: Int32s = np.zeros((count, _TAIL), np.int32)
        self.tail_len: Ints = np.zeros(count, np.int64)

    @property
    def num_taken(self) -> int:
        return self.count - len(self._free)

    @property
    def num_free(self) -> int:
        return len(self._free)

    def taken(self) -> Ints:
        """The rows in use, ascending."""
        return self.tenancy.nonzero()[0]

    def ends_by_count(self, rows: Ints) -> NDArray[np.bool_]:
        """[n] whether only the number of tokens ends the choices of `rows` [n]."""
        alone: NDArray[np.bool_] = (self.stops[0][rows] < 0) & ~self.many_stops[rows]
        return alone

    def take(self, choice: Choice, worker: int) -> int:
        """Give a choice a row; nothing of it is computed yet."""
        row = heapq.heappop(self._free)
        self._tenancies += 1
        self.version += 1
        request = choice.request
        self.choices[row] = choice
        choice.state, choice.worker, choice.row, choice.tenancy = State.RUNNING, worker, row, self._tenancies
        self.tenancy[row] = self._tenancies
        self.num_written[row] = self.num_computed[row] = 0
        self.num_known[row] = self.length[row] = choice.num_known
        self.max_length[row] = choice.max_length
        self.prompt_len[row] = request.prompt_len
        self.min_length[row] = request.prompt_len + request.params.min_tokens
        self.keep[row] = np.iinfo(np.int64).max
        self.client[row] = request.client_number
        self.request[row] = request.number
        self.tenant[row] = request.tenant
        self.attempt[row] = request.attempt
        self.choice[row] = choice.index
        self.fresh[row] = choice.fresh
        self._set_stops(row, request.stops)
        self.tail_len[row] = 0
        return row

    def _set_stops(self, row: int, stops: tuple[int, ...]) -> None:
        self.many_stops[row] = len(stops) > _MAX_STOPS
        used = () if self.many_stops[row] else stops
        width = len(self.stops)
        if len(used) > width:
            more = np.full((len(used) - width, self.count), -1, np.int32)
            self.stops = np.concatenate([self.stops, more])
        self.stops[:, row] = -1
        self.stops[: len(used), row] = used

    def start_behind(self, row: int, length: int) -> None:
        """The first `length` tokens of a row just taken are in its blocks already."""
        self.num_written[row] = self.num_computed[row] = length

    def flush(self, row: int) -> None:
        """Move the row's newest output tokens to its choice."""
        count = int(self.tail_len[row])
        if count:
            self.at(row).output += self.tail[row, :count].tobytes()
            self.tail_len[row] = 0

    def at(self, row: int) -> Choice:
        """The choice that has the row."""
        choice = self.choices[row]
        if choice is None:
            raise KeyError(f"row {row} is free")
        return choice

    def cohort(self, rows: Ints, name: bytes) -> Cohort:
        """What `rows` [n], of which `name` is the int32 column, bring along; mostly they drew last, too."""
        last = self._cohort
        if last is None or last.version != self.version or last.name != name:
            last = self._cohort = Cohort(self, rows, name)
        return last

    def append(self, rows: Ints, tokens: Int32s) -> Ints:
        """Drawn tokens [n] become known; returns the rows' new num_known [n]."""
        at = self.tail_len[rows]
        self.tail[rows, at] = tokens
        at += 1
        self.tail_len[rows] = at
        known = self.num_known[rows] + 1
        self.num_known[rows] = known
        if at.max(initial=0) == _TAIL:
            for row in rows[at == _TAIL].tolist():
                self.flush(row)
        return known

    def release(self, row: int) -> Choice:
        """Free a row; its choice knows all tokens applied so far. The choice's next state is the caller's."""
        self.flush(row)
        self.version += 1
        choice = self.at(row)
        choice.fresh = bool(self.fresh[row])
        choice.worker = choice.row = -1
        self.choices[row] = None
        for column in (self.tenancy, self.num_written, self.num_computed, self.num_known, self.length):
            column[row] = 0
        heapq.heappush(self._free, row)
        return choice
