"""Operators of a step in C, where the machine has a compiler: fewer passes over memory than torch's.

`native_ops()` gives them, or None: then the forms of the modules beside this folder serve. All take bfloat16
tensors whose last dimension is contiguous.
"""

import ctypes
import logging
import os
from ctypes import c_bool, c_float, c_int, c_int64, c_void_p
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from .build import BuildError, load_library

_log = logging.getLogger(__name__)

CHUNK = 512
"""Positions of a row that are attended at once, as in operators.c."""

_ACTIVATIONS = {"silu": 0, "gelu_tanh": 1}


class _Paged(ctypes.Structure):
    _fields_ = (
        ("cache", c_void_p),
        ("tables", c_void_p),
        ("lengths", c_void_p),
        ("queries", c_void_p),
        *((name, c_int64) for name in ("rows", "max_blocks", "block_size", "window")),
        *((name, c_int64) for name in ("num_heads", "num_kv_heads", "head_dim", "max_chunks")),
        ("scale", c_float),
        ("softcap", c_float),
    )


class PagedDecodes(NamedTuple):
    """Rows of one query each, attended straight from their blocks."""

    tables: Tensor
    """[R, max_blocks] int32."""
    lengths: Tensor
    """[R] int32, context lengths including the query."""
    queries: Tensor | None
    """[R] int64, where each row's query stands among the tokens; None when they are all tokens in order."""
    block_size: int
    window: int
    max_chunks: int
    """Of CHUNK positions, in the longest row."""


_SIGNATURES = {
    "matvec": [c_void_p] * 4 + [c_int64] * 2 + [c_int],
    "matvec_gated": [c_void_p] * 4 + [c_int64] * 2 + [c_int] * 2,
    "add_rms_norm": [c_void_p] * 4 + [c_int64] * 2 + [c_float, c_int],
    "rotate": [c_void_p, c_int64, c_void_p, c_void_p] + [c_int64] * 4 + [c_int],
    "store": [c_void_p] * 3 + [c_int64] * 3 + [c_int],
    "attend": [c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_float, c_float, c_int],
    "draw": [c_void_p, c_void_p, c_bool] + [c_void_p] * 5 + [c_int64] * 2 + [c_int],
}


class Native:
    """The library's functions over tensors."""

    def __init__(self, library: ctypes.CDLL) -> None:
        for name, types in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, None
        self._matvec = library.matvec
        self._matvec_gated = library.matvec_gated
        self._add_rms_norm = library.add_rms_norm
        self._rotate = library.rotate
        self._store = library.store
        self._attend = library.attend
        self._draw = library.draw

    def matvec(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """`x W^T + b` of x [1, in] and weight [out, in]: [1, out]."""
        y = x.new_empty(1, weight.shape[0])
        self._matvec(y.data_ptr(), x.data_ptr(), weight.data_ptr(), _address(bias), *weight.shape, _threads())
        return y

    def matvec_gated(self, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
        """`activation(gate) * up` of x [1, in] and weight [2 * out, in], the gate half first: [1, out]."""
        out = weight.shape[0] // 2
        y = x.new_empty(1, out)
        self._matvec_gated(
            y.data_ptr(),
            x.data_ptr(),
            weight.data_ptr(),
            _address(bias),
            out,
            weight.shape[1],
            _ACTIVATIONS[activation],
            _threads(),
        )
        return y

    def add_rms_norm(self, x: Tensor | None, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Adds x [rows, hidden] to residual (float32) in place and returns the norm of the sum."""
        y = torch.empty_like(residual, dtype=weight.dtype)
        rows, width = residual.shape
        self._add_rms_norm(
            y.data_ptr(), residual.data_ptr(), _address(x), weight.data_ptr(), rows, width, eps, _threads()
        )
        return y

    def rotate(self, heads: Tensor, cos: Tensor, sin: Tensor) -> None:
        """Rotates heads [rows, num_heads, head_dim] in place by the tables of `RopeRows`."""
        rows, num_heads, head_dim = heads.shape
        self._rotate(
            heads.data_ptr(),
            heads.stride(0),
            cos.data_ptr(),
            sin.data_ptr(),
            rows,
            num_heads,
            head_dim,
            cos.shape[-1],
            _threads(),
        )

    def store(self, cache: Tensor, slots: Tensor, kv: Tensor) -> None:
        """Writes kv [rows, 2, num_kv_heads, head_dim] to lines `slots` (int64) of the cache."""
        width = cache.stride(0)
        self._store(
            cache.data_ptr(),
            slots.data_ptr(),
            kv.data_ptr(),
            kv.stride(0),
            kv.shape[0],
            width,
            _threads(),
        )

    def attend(
        self, out: Tensor, q: Tensor, cache: Tensor, rows: PagedDecodes, scale: float, softcap: float
    ) -> None:
        """Writes the attention of `rows` to their lines of out [num_tokens, num_heads * head_dim].

        Args:
            q: [num_tokens, num_heads, head_dim].
            cache: [num_slots, 2, num_kv_heads, head_dim].
            softcap: scores are `softcap * tanh(scores / softcap)` unless it is 0.
        """
        num_heads, head_dim = q.shape[1:]
        num_rows, max_blocks = rows.tables.shape
        plan = _Paged(
            tables=rows.tables.data_ptr(),
            lengths=rows.lengths.data_ptr(),
            queries=_address(rows.queries),
            rows=num_rows,
            max_blocks=max_blocks,
            block_size=rows.block_size,
            window=rows.window,
            num_heads=num_heads,
            num_kv_heads=cache.shape[2],
            head_dim=head_dim,
            max_chunks=rows.max_chunks,
        )
        partials = torch.empty(num_rows * num_heads * rows.max_chunks * (head_dim + 2))
        self._attend(
            out.data_ptr(),
            q.data_ptr(),
            q.stride(0),
            cache.data_ptr(),
            partials.data_ptr(),
            ctypes.byref(plan),
            scale,
            softcap,
            _threads(),
        )

    def draw(
        self, logits: Tensor, temperature: Tensor, seed: Tensor, choice: Tensor, position: Tensor
    ) -> Tensor:
        """One token of each row, [R] int64, by inverting softmax(logits / temperature) at one uniform.

        A row without a distribution gives -1.

        Args:
            logits: [R, vocab] of bfloat16 or float32.
            temperature: [R] float32, above 0.
            seed, choice, position: [R] int64.
        """
        rows, vocab = logits.shape
        tokens = torch.empty(rows, dtype=torch.int64)
        scratch = torch.empty(rows * 2 * vocab)
        self._draw(
            tokens.data_ptr(),
            logits.data_ptr(),
            logits.dtype == torch.float32,
            scratch.data_ptr(),
            temperature.data_ptr(),
            seed.data_ptr(),
            choice.data_ptr(),
            position.data_ptr(),
            rows,
            vocab,
            _threads(),
        )
        return tokens


@lru_cache
def native_ops() -> Native | None:
    """The operators, built at the first call; None where that is not possible or `OCTAVO_NATIVE=0` is set."""
    if os.environ.get("OCTAVO_NATIVE") == "0":
        return None
    try:
        return Native(load_library())
    except BuildError as error:
        _log.info("steps run on torch's operators alone, which takes up to twice as long: %s", error)
        return None


def _threads() -> int:
    return torch.get_num_threads()


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
