"""Writing a safetensors file tensor by tensor, so that only one has to be in memory."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True)
class TensorInfo:
    """What the header says of one tensor; `dtype` is "F32", "F16" or "BF16"."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * _ITEM_BYTES[self.dtype]


def write_safetensors_file(path: Path, infos: Sequence[TensorInfo], contents: Iterable[bytes]) -> None:
    """Write the tensors `infos`, whose little-endian bytes `contents` yields in the same order.

    The format is 8 bytes of header length, a JSON header with dtype, shape and offsets of each tensor, then
    the data. Raises ValueError when contents and infos disagree in number or size.
    """
    header = _header(infos)
    with path.open("wb") as out:
        out.write(len(header).to_bytes(8, "little"))
        out.write(header)
        for info, content in zip(infos, contents, strict=True):
            if len(content) != info.num_bytes:
                raise ValueError(f"{info.name}: {len(content)} bytes, expected {info.num_bytes}")
            out.write(content)


def _header(infos: Sequence[TensorInfo]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for info in infos:
        end = start + info.num_bytes
        entries[info.name] = {"dtype": info.dtype, "shape": info.shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    # Readers map the file: padding the header keeps the data aligned to 8 bytes.
    return text + b" " * (-len(text) % 8)
