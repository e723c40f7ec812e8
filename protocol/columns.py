"""Columns: arrays of numbers as little-endian bytes inside a message.

A step moves hundreds of small numbers. As one bytes field a column costs a copy; as a MessagePack list it
costs an object a number.
"""

import sys
from array import array
from collections.abc import Iterable

from .errors import ProtocolError

if sys.byteorder != "little" or array("i").itemsize != 4 or array("q").itemsize != 8:
    raise ImportError("octavo needs a little-endian machine with 4-byte int and 8-byte long long")


def pack_i32(values: Iterable[int]) -> bytes:
    """int32 column. Raises OverflowError for a value outside int32."""
    return array("i", values).tobytes()


def pack_i64(values: Iterable[int]) -> bytes:
    """int64 column. Raises OverflowError for a value outside int64."""
    return array("q", values).tobytes()


def pack_f32(values: Iterable[float]) -> bytes:
    """float32 column."""
    return array("f", values).tobytes()


def _view(column: bytes, code: str, size: int) -> memoryview:
    if len(column) % size:
        raise ProtocolError(f"a column of {len(column)} bytes does not hold whole numbers of {size} bytes")
    return memoryview(column).cast(code)  # type: ignore[call-overload, no-any-return, unused-ignore]


def unpack_i32(column: bytes) -> memoryview:
    """A view of an int32 column: indexable, iterable, `.tolist()`. Raises ProtocolError for a cut column."""
    return _view(column, "i", 4)


def unpack_i64(column: bytes) -> memoryview:
    """A view of an int64 column. Raises ProtocolError for a cut column."""
    return _view(column, "q", 8)


def unpack_f32(column: bytes) -> memoryview:
    """A view of a float32 column. Raises ProtocolError for a cut column."""
    return _view(column, "f", 4)
