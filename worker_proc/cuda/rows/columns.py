"""What the device knows of each permanent row, as columns of one tensor of 32-bit words."""

import struct

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Int32s = NDArray[np.int32]

RECENT = 32
"""Tokens that a row remembers of its output, for words that are banned."""

# 64-bit columns come first, so that they are aligned.
_FIELDS = {
    "seed": "q",
    "choice": "q",
    "temperature": "f",
    "min_p": "f",
    "top_k": "i",
    "top_p": "f",
    "temperature_last": "i",
    "repetition": "f",
    "frequency": "f",
    "presence": "f",
    "penalty_slot": "i",
    "prompt_len": "i",
    "allowed_start": "i",
    "allowed_count": "i",
    "biased_start": "i",
    "biased_count": "i",
    "banned_start": "i",
    "banned_count": "i",
    "words_start": "i",
    "words_count": "i",
}
_DTYPES = {"q": torch.int64, "f": torch.float32, "i": torch.int32}
_ROW_FORMAT = struct.Struct("<" + "".join(_FIELDS.values()))


class RowColumns:
    """The columns, each a view of `state`, and where in `state` the words of a row stand.

        fields      [num_rows] each, of the dtypes above
        last_token  [num_rows] int32, what the row drew last
        recent      [num_rows, RECENT] int32, the token at position p in column p % RECENT
        tables      [num_groups, num_rows, max_blocks] int32, KV blocks from position 0 on
        pool        [pool_size] int32, token lists of rows, each where its fields say
        beside      [pool_size] int32, a bias (the bits of a float32) or a position for each entry of the pool

    `last_token` and `recent` are written by the device too, as tokens are drawn.
    """

    def __init__(
        self, num_rows: int, max_blocks: int, num_groups: int, pool_size: int, *, device: torch.device | str
    ) -> None:
        self.num_rows = num_rows
        self._offsets: list[int] = []
        self._strides: list[int] = []
        spans: dict[str, tuple[int, int]] = {}
        end = 0
        for name, code in _FIELDS.items():
            words = struct.calcsize(code) // 4
            spans[name] = (end, words * num_rows)
            self._offsets += [end + word for word in range(words)]
            self._strides += [words] * words
            end += words * num_rows
        self._recent_at = end + num_rows
        self._tables_at = self._recent_at + num_rows * RECENT
        self._table_strides = (num_rows * max_blocks, max_blocks)
        self._pool_at = self._tables_at + num_groups * num_rows * max_blocks
        self._beside_at = self._pool_at + pool_size
        self.state = torch.zeros(self._beside_at + pool_size, dtype=torch.int32, device=device)
        self._fields = {
            name: self.state[start : start + size].view(_DTYPES[_FIELDS[name]])
            for name, (start, size) in spans.items()
        }
        self.last_token = self.state[end : self._recent_at]
        self.recent = self.state[self._recent_at : self._tables_at].view(num_rows, RECENT)
        self.tables = self.state[self._tables_at : self._pool_at].view(num_groups, num_rows, max_blocks)
        self.pool = self.state[self._pool_at : self._beside_at]
        self.beside = self.state[self._beside_at :]
        self.beside_floats = self.beside.view(torch.float32)
        self._row_offsets = np.array(self._offsets, np.int32)
        self._row_strides = np.array(self._strides, np.int32)

    def __getitem__(self, name: str) -> Tensor:
        return self._fields[name]

    def fields_of(self, row: int, values: dict[str, int | float]) -> tuple[Int32s, Int32s]:
        """Addresses and words that give a row all its fields; `values` has one for each."""
        packed = _ROW_FORMAT.pack(*(values[name] for name in _FIELDS))
        return self._row_offsets + row * self._row_strides, np.frombuffer(packed, np.int32)

    def recent_of(self, row: int, first: int, tokens: Int32s) -> tuple[Int32s, Int32s]:
        """Addresses and words that make the row remember tokens from position `first` on, at most RECENT."""
        columns = np.arange(first, first + len(tokens), dtype=np.int32) % RECENT
        return self._recent_at + row * RECENT + columns, tokens

    def pool_of(self, first: int, count: int) -> tuple[Int32s, Int32s]:
        """Addresses of entries of the pool from `first` on, and of what stands beside them."""
        entries = np.arange(first, first + count, dtype=np.int32)
        return self._pool_at + entries, self._beside_at + entries

    def block_addresses(
        self,
        group: int | NDArray[np.integer],
        row: int | NDArray[np.integer],
        place: int | NDArray[np.integer],
    ) -> NDArray[np.integer]:
        """Addresses of places in rows' tables."""
        return self._tables_at + group * self._table_strides[0] + row * self._table_strides[1] + place
