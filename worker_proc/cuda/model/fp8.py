"""Linear layers whose weights are kept in 8-bit floating point, quantized when they are loaded.

A matrix has one scale. Tokens are quantized as they come, each with a scale of its own, so that what a token
becomes depends on nothing that shares its step. A step of one token multiplies it as it is: reading the
weights is all that it costs.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ....kernels import device as kernels
from ....kernels.reference import quantize_weight
from ....protocol.errors import ModelError
from .arena import Arena

_MULTIPLE = 16  # of rows and width, which the library's product needs


class Fp8Weight(NamedTuple):
    """A weight [out, in] is `values * scale`."""

    values: Tensor  # [out, in] float8_e4m3fn
    scale: Tensor  # [1] float32
    one: Tensor  # [1] float32 that holds 1, where the product wants a scale of all tokens


def pack_fp8(weight: Tensor) -> Fp8Weight | Tensor:
    """The weight in 8 bits, or as it is where its shape cannot be multiplied in 8 bits.

    Raises ModelError for float16, whose range a product without the tokens' scales can leave.
    """
    if weight.dtype == torch.float16:
        raise ModelError("quantization fp8 needs a model in bfloat16: give --dtype bfloat16")
    if any(size % _MULTIPLE for size in weight.shape):
        return weight
    values, scale = quantize_weight(weight)
    return Fp8Weight(values, scale, torch.ones_like(scale))


def fp8_linear(x: Tensor, weight: Fp8Weight, bias: Tensor | None, out: Tensor, arena: Arena) -> Tensor:
    """`x W^T + b` into `out` [num_tokens, out]; x [num_tokens, in] is quantized into the arena."""
    num_tokens, width = x.shape
    tokens = arena.take("fp8 tokens", num_tokens, width, torch.float8_e4m3fn)
    scales = arena.take("fp8 scales", num_tokens, 1, torch.float32).view(num_tokens)
    kernels.quantize_tokens(x, out=(tokens, scales))
    kernels.fp8_linear(tokens, scales, weight.values, weight.scale, out=out, one=weight.one)
    return out if bias is None else out.add_(bias)
