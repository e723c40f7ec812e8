"""Linear layers with weights in the layout that oneDNN's matrix kernels read."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

# Rows the layout is chosen for; it serves any number, and for one row it is better than the layout for one.
_ROWS = 32


class PackedLinear(NamedTuple):
    """A weight, and whether it is in oneDNN's own layout."""

    weight: Tensor
    packed: bool


def pack_linear(weight: Tensor) -> PackedLinear:
    """The fastest form of a weight [out, in] on this machine.

    Packing pays where oneDNN has 16-bit kernels (AVX512-BF16, AMX); elsewhere the weight stays as it is.
    """
    if weight.dtype == torch.bfloat16:
        supported = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    elif weight.dtype == torch.float16:
        supported = torch.ops.mkldnn._is_mkldnn_fp16_supported()
    else:
        supported = False
    if not supported:
        return PackedLinear(weight, False)
    return PackedLinear(torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS), True)


def linear(x: Tensor, packed: PackedLinear, bias: Tensor | None) -> Tensor:
    """`x W^T + b` of x [num_tokens, in], [num_tokens, out]."""
    if packed.packed:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed.weight, bias, "none", [], "")
        return result
    return functional.linear(x, packed.weight, bias)


def embed(token_ids: Tensor, table: Tensor) -> Tensor:
    """Lines of `table` [vocab_size, hidden_size] in float32: [num_tokens, hidden_size].

    The residual stream begins here. Its sums stay in float32, where they cost nothing beside the matrices:
    rounded to bfloat16 at each layer they change the first word of an answer.
    """
    return functional.embedding(token_ids, table).to(torch.float32)
