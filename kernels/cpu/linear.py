"""Linear layers: weights in the layout that oneDNN's matrix kernels read, and as they are for one row."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .activation import gelu_tanh_mul, silu_mul
from .native import Native, native_ops

# Rows the layout is chosen for; it serves any number, and for one row it is better than the layout for one.
_ROWS = 32


class PackedLinear(NamedTuple):
    """A weight as it is, in oneDNN's layout, or both."""

    packed: Tensor | None
    plain: Tensor | None


class PackedGated(NamedTuple):
    """The gate and the up half of a weight in oneDNN's layout, and perhaps the whole as it is."""

    gate: Tensor
    up: Tensor
    plain: Tensor | None


def pack_linear(weight: Tensor, *, keep_plain: bool = False) -> PackedLinear:
    """The fastest form of a weight [out, in] on this machine.

    Packing pays where oneDNN has 16-bit kernels (AVX512-BF16, AMX); elsewhere the weight stays as it is. For
    one row the weight as it is can be read faster, where there are native operators: `keep_plain` keeps it
    too, for as much memory again.
    """
    if not _packs(weight.dtype):
        return PackedLinear(None, weight)
    return PackedLinear(_reorder(weight), weight if keep_plain and _for_one_row(weight.dtype) else None)


def pack_gated(weight: Tensor, *, keep_plain: bool = False) -> PackedGated | PackedLinear:
    """The same of a weight [2 * out, in], the gate half first, for `gated_linear`."""
    if not _packs(weight.dtype):
        return PackedLinear(None, weight)
    plain = weight if keep_plain and _for_one_row(weight.dtype) else None
    return PackedGated(*map(_reorder, weight.chunk(2)), plain)


def _for_one_row(dtype: torch.dtype) -> Native | None:
    """The native operators, if they multiply a weight of this dtype with one row."""
    return native_ops() if dtype == torch.bfloat16 else None


def linear(x: Tensor, weight: PackedLinear, bias: Tensor | None) -> Tensor:
    """`x W^T + b` of x [num_tokens, in], [num_tokens, out]."""
    plain = weight.plain
    if plain is not None and x.shape[0] == 1 and (kernel := _for_one_row(x.dtype)):
        return kernel.matvec(x.contiguous(), plain, bias)
    if weight.packed is not None:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight.packed, bias, "none", [], "")
        return result
    assert plain is not None
    return functional.linear(x, plain, bias)


def gated_linear(
    x: Tensor,
    weight: PackedGated | PackedLinear,
    bias: Tensor | None,
    activation: str,
) -> Tensor:
    """`activation(gate) * up` of `x W^T + b` = (gate, up), [num_tokens, out].

    Packed, both halves end in the matrix kernels themselves, and nothing between them is rounded twice.
    """
    plain = weight.plain
    if plain is not None and x.shape[0] == 1 and (kernel := _for_one_row(x.dtype)):
        return kernel.matvec_gated(x.contiguous(), plain, bias, activation)
    if isinstance(weight, PackedLinear):
        whole = linear(x, weight, bias)
        return silu_mul(whole) if activation == "silu" else gelu_tanh_mul(whole)
    gate_bias, up_bias = (None, None) if bias is None else bias.chunk(2)
    name, algorithm = ("swish", "") if activation == "silu" else ("gelu", "tanh")
    gate = torch.ops.mkldnn._linear_pointwise(x, weight.gate, gate_bias, name, [], algorithm)
    result: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, gate, weight.up, up_bias, "mul")
    return result


def _packs(dtype: torch.dtype) -> bool:
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float16 and bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


def _reorder(weight: Tensor) -> Tensor:
    reordered: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
    return reordered


def embed(token_ids: Tensor, table: Tensor) -> Tensor:
    """Lines of `table` [vocab_size, hidden_size] in float32: [num_tokens, hidden_size].

    The residual stream begins here. Its sums stay in float32, where they cost nothing beside the matrices:
    rounded to bfloat16 at each layer they change the first word of an answer.
    """
    return functional.embedding(token_ids, table).to(torch.float32)
