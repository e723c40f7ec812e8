"""Memory for the results of operators: one buffer for each use, as large as the largest step needs.

A captured graph reads and writes fixed addresses, and graphs that share buffers cost no memory of their own.
"""

import torch
from torch import Tensor


class Arena:
    """Buffers by use and width. A result lives until the next one of its use and width is asked for."""

    def __init__(self, device: torch.device | str) -> None:
        self._device = device
        self._buffers: dict[tuple[str, int, torch.dtype], Tensor] = {}
        self._frozen = False

    def take(self, use: str, num_rows: int, width: int, dtype: torch.dtype) -> Tensor:
        """A [num_rows, width] tensor. Raises RuntimeError when a frozen arena has none that large."""
        key = (use, width, dtype)
        buffer = self._buffers.get(key)
        if buffer is None or len(buffer) < num_rows:
            if self._frozen:
                have = 0 if buffer is None else len(buffer)
                raise RuntimeError(f"{use} of width {width} has {have} rows, {num_rows} are asked for")
            # Zeros, since padding rows are computed with: what they hold must at least be finite.
            buffer = torch.zeros(num_rows, width, dtype=dtype, device=self._device)
            self._buffers[key] = buffer
        return buffer[:num_rows]

    def freeze(self) -> None:
        """From now on nothing is allocated: captured graphs hold the buffers' addresses."""
        self._frozen = True
