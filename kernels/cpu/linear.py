"""Linear layers with weights in the layout that oneDNN's matrix kernels read."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .activation import gelu_tanh_mul, silu_mul

# Rows the layout is chosen for; it serves any number, and for one row it is better than the layout for one.
_ROWS = 32


class PackedLinear(NamedTuple):
    """A weight, and whether it is in oneDNN's own layout."""

    weight: Tensor
    packed: bool


class PackedGated(NamedTuple):
    """The gate and the up half of a weight, each in oneDNN's layout."""

    gate: Tensor
    up: Tensor


def pack_linear(weight: Tensor) -> PackedLinear:
    """The fastest form of a weight [out, in] on this machine.

    Packing pays where oneDNN has 16-bit kernels (AVX512-BF16, AMX); elsewhere the weight stays as it is.
    """
    return PackedLinear(_reorder(weight), True) if _packs(weight.dtype) else PackedLinear(weight, False)


def pack_gated(weight: Tensor) -> PackedGated | PackedLinear:
    """The same of a weight [2 * out, in], the gate half first, for `gated_linear`."""
    if not _packs(weight.dtype):
        return PackedLinear(weight, False)
    return PackedGated(*map(_reorder, weight.chunk(2)))


def pack_head(weight: Tensor) -> PackedLinear:
    """The same of the weight [vocab_size, hidden_size] of the logits."""
    return pack_linear(weight)


def linear(x: Tensor, packed: PackedLinear, bias: Tensor | None) -> Tensor:
    """`x W^T + b` of x [num_tokens, in], [num_tokens, out]."""
    if packed.packed:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed.weight, bias, "none", [], "")
        return result
    return functional.linear(x, packed.weight, bias)


def gated_linear(
    x: Tensor,
    packed: PackedGated | PackedLinear,
    bias: Tensor | None,
    activation: str,
) -> Tensor:
    """`activation(gate) * up` of `x W^T + b` = (gate, up), [num_tokens, out].

    Packed, both halves end in the matrix kernels themselves, and nothing between them is rounded twice.
    """
    if isinstance(packed, PackedLinear):
        whole = linear(x, packed, bias)
        return silu_mul(whole) if activation == "silu" else gelu_tanh_mul(whole)
    gate_bias, up_bias = (None, None) if bias is None else bias.chunk(2)
    name, algorithm = ("swish", "") if activation == "silu" else ("gelu", "tanh")
    gate = torch.ops.mkldnn._linear_pointwise(x, packed.gate, gate_bias, name, [], algorithm)
    result: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, gate, packed.up, up_bias, "mul")
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
