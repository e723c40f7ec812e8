"""One host-to-device copy a step: the step's columns, changes to rows, and token ids.

    row          [num_rows] int32    } the plan's columns, each at a fixed place, since captured
    start        [num_rows]          } graphs read them there
    query_start  [num_rows + 1]      }
    ids_at       [num_rows]          }
    line         [num_rows]          }
    changes      n, then n addresses in the row columns' words, then n values
    ids          token ids, where `ids_at` says, counted from the begin of the whole

Only as much as is used is copied. The host side is a ring: a copy may still be reading what an earlier step
left there.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....kernels.reference import PlanColumns

Int32s = NDArray[np.int32]

_ALIGN = 4  # words; kernels are compiled for addresses of 16 bytes


class Staging:
    """The ring of host buffers and the device's one copy."""

    def __init__(
        self,
        num_rows: int,
        max_changes: int,
        max_ids: int,
        *,
        num_slots: int,
        device: torch.device | str,
        pinned: bool,
    ) -> None:
        self.num_rows = num_rows
        self._column = -(-(num_rows + 1) // _ALIGN) * _ALIGN
        self._changes_at = 5 * self._column
        num_words = self._changes_at + 1 + 2 * max_changes + max_ids + _ALIGN
        self._hosts = [torch.zeros(num_words, dtype=torch.int32, pin_memory=pinned) for _ in range(num_slots)]
        self._views: list[Int32s] = [host.numpy() for host in self._hosts]
        self._slot = 0
        self._num_changes = 0
        self._used = 0
        self.device = torch.zeros(num_words, dtype=torch.int32, device=device)
        self.changes = self.device[self._changes_at :]
        self._addresses = np.zeros(max_changes, np.int32)
        self._values = np.zeros(max_changes, np.int32)

    def columns(self, num_rows: int) -> PlanColumns:
        """The device's columns for a step of so many rows, padding included."""
        first, size = self.device, self._column
        return PlanColumns(
            row=first[:num_rows],
            start=first[size : size + num_rows],
            query_start=first[2 * size : 2 * size + num_rows + 1],
            ids_at=first[3 * size : 3 * size + num_rows],
            line=first[4 * size : 4 * size + num_rows],
            ids=first,
        )

    def begin(self) -> None:
        """Take the next host buffer. Its last copy must be done."""
        self._slot = (self._slot + 1) % len(self._hosts)
        self._num_changes = 0

    def change(self, addresses: Int32s, words: Int32s) -> None:
        """Add changes to the step."""
        end = self._num_changes + len(addresses)
        self._addresses[self._num_changes : end] = addresses
        self._values[self._num_changes : end] = words
        self._num_changes = end

    def write_columns(
        self,
        row: NDArray[np.integer],
        start: NDArray[np.integer],
        num_tokens: NDArray[np.integer],
        ids_at: Int32s,
        line: Int32s,
    ) -> None:
        """Write the step's columns, and behind them what padding rows need."""
        host, size, used = self._views[self._slot], self._column, len(row)
        for place, values, padding in ((0, row, 0), (1, start, 0), (3, ids_at, -1), (4, line, -1)):
            host[place * size : place * size + used] = values
            host[place * size + used : place * size + self.num_rows] = padding
        query_start = host[2 * size : 2 * size + self.num_rows + 1]
        query_start[0] = 0
        np.cumsum(num_tokens, out=query_start[1 : used + 1])
        query_start[used + 1 :] = query_start[used]

    def write_changes(self) -> int:
        """Write the collected changes; returns where token ids may begin."""
        host, at, count = self._views[self._slot], self._changes_at + 1, self._num_changes
        host[at - 1] = count
        host[at : at + count] = self._addresses[:count]
        host[at + count : at + 2 * count] = self._values[:count]
        self._used = -(-(at + 2 * count) // _ALIGN) * _ALIGN
        return self._used

    def write_nothing(self) -> None:
        """Stage a step without rows and changes."""
        nothing = np.zeros(0, np.int32)
        self.write_changes()
        self.write_columns(nothing, nothing, nothing, nothing, nothing)

    def write_ids(self, ids: Int32s) -> None:
        """Write token ids behind those already written."""
        end = self._used + len(ids)
        self._views[self._slot][self._used : end] = ids
        self._used = end

    def send(self) -> Tensor:
        """Copy to the device without waiting; returns what was copied."""
        copied = self.device[: self._used]
        copied.copy_(self._hosts[self._slot][: self._used], non_blocking=True)
        return copied
