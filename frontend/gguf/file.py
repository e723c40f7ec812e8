"""One open GGUF file: its metadata as plain Python values, and its tensors."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from numpy.typing import NDArray

T = TypeVar("T")


class UnsupportedGgufError(ValueError):
    """The file is a GGUF, but holds something that cannot be converted; the message names it."""


@dataclass(frozen=True)
class GgufTensor:
    """One tensor of the file, still in its quantized blocks.

    `shape` is in the order of NumPy and torch (rows first), the reverse of the file's own order.
    """

    name: str
    shape: tuple[int, ...]
    quantization: str
    _blocks: NDArray[Any]
    _type: Any

    def to_float32(self) -> NDArray[np.float32]:
        """The tensor's values, unpacked to float32, of shape `shape`."""
        values = dequantize(self._blocks, self._type).reshape(self.shape)
        return np.ascontiguousarray(values, dtype=np.float32)


class GgufFile:
    """A GGUF file mapped into memory.

    Raises ValueError when `path` is no GGUF file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader = GGUFReader(path)
        self.metadata: dict[str, Any] = {key: field.contents() for key, field in self._reader.fields.items()}
        self.architecture = self.require("general.architecture", str)

    def require(self, key: str, kind: type[T]) -> T:
        """The value of a metadata key; raises `UnsupportedGgufError` when it is absent or of another type."""
        value = self.metadata.get(key)
        if not isinstance(value, kind):
            raise UnsupportedGgufError(f"{self.path.name}: the key {key} is missing or not a {kind.__name__}")
        return value

    def hparam(self, name: str, kind: type[T]) -> T:
        """A hyperparameter, stored under the architecture's prefix (`llama.block_count` for a llama)."""
        return self.require(f"{self.architecture}.{name}", kind)

    def tensor_names(self) -> set[str]:
        return {tensor.name for tensor in self._reader.tensors}

    def tensors(self) -> Iterator[GgufTensor]:
        """The tensors in the order of the file."""
        for tensor in self._reader.tensors:
            shape = tuple(int(size) for size in reversed(tensor.shape.tolist()))
            kind = cast(Any, tensor.tensor_type)
            yield GgufTensor(tensor.name, shape, kind.name, tensor.data, kind)
