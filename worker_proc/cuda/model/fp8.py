"""Linear layers whose weights are kept in 8-bit floating point, quantized when they are loaded.

A matrix has one scale. Tokens are quantized as they come, each with a scale of its own, so that what a token
becomes depends on nothing that shares its step. A step of one token multiplies it as it is: reading the
weights is all that it costs. Where all projections of a model are in 8 bits, its layers are those of
`fp8_layers`.
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
    tokens = kernels.quantize_tokens(x, out=take_tokens(arena, "tokens", *x.shape))
    return kernels.scale_tokens(fp8_product(tokens[0], weight, out), tokens[1], bias=bias)


def fp8_product(tokens: Tensor, weight: Fp8Weight, out: Tensor) -> Tensor:
    """The product in `out` that the scales of the tokens [num_tokens, in] are yet to be applied to."""
    return kernels.fp8_product(tokens, weight.values, weight.scale, out=out, one=weight.one)


def take_tokens(arena: Arena, use: str, num_tokens: int, width: int) -> tuple[Tensor, Tensor]:
    """Buffers for tokens [num_tokens, width] in 8 bits, and for their scales [num_tokens]."""
    scales = arena.take(f"{use} scales", num_tokens, 1, torch.float32)
    return arena.take(use, num_tokens, width, torch.float8_e4m3fn), scales.view(num_tokens)
