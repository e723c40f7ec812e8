"""The header of a safetensors file: 8 bytes of length, then JSON, then the tensors' bytes.

Source: the format's specification in the safetensors repository.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...protocol.errors import ModelError

_MAX_HEADER = 100 << 20
_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies, checked against its file's size."""

    name: str
    path: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int  # in bytes, from the file's begin

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(path: Path) -> list[StoredTensor]:
    """The tensors of a file, in file order. Raises ModelError that names the file and a tensor at fault."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(_MAX_HEADER, size - 8):
                raise ModelError(f"{path} is no safetensors file, or is cut within its header")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        items = sorted(header.items(), key=lambda item: item[1]["data_offsets"][0])
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise ModelError(f"{path} has no readable header: {error}") from error
    return [_entry(name, info, path, 8 + length, size) for name, info in items]


def _entry(name: str, info: dict[str, Any], path: Path, base: int, size: int) -> StoredTensor:
    dtype = _DTYPES.get(str(info.get("dtype")))
    if dtype is None:
        raise ModelError(
            f"{path}: tensor {name} has dtype {info.get('dtype')}, only {', '.join(_DTYPES)} are supported"
        )
    try:
        begin, end = info["data_offsets"]
        shape = tuple(int(n) for n in info["shape"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: tensor {name} has no valid header entry") from error
    stored = StoredTensor(name, path, dtype, shape, base + begin)
    if end - begin != stored.num_bytes or begin < 0 or min(shape, default=0) < 0:
        raise ModelError(f"{path}: tensor {name} of shape {list(shape)} does not take {end - begin} bytes")
    if base + end > size:
        raise ModelError(f"{path}: tensor {name} is truncated, the file ends {base + end - size} bytes early")
    return stored


def checkpoint_dtype(path: Path) -> torch.dtype:
    """The dtype of the largest tensor of a file: what the checkpoint was saved in."""
    stored = read_header(path)
    if not stored:
        raise ModelError(f"{path} holds no tensor")
    return max(stored, key=lambda tensor: tensor.num_bytes).dtype
