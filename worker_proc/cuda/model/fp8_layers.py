"""The layers of a model whose projections are all in 8 bits, in as few passes over the tokens as can be.

A product's result goes without its tokens' scales to what reads it, which applies them and quantizes what it
computes for the next product.
"""

from typing import NamedTuple, Protocol

from torch import Tensor

from ....kernels import device as kernels
from ...models import Decoder
from ...models.layers import AttentionSpec, Linear
from .arena import Arena
from .fp8 import Fp8Weight, fp8_product, take_tokens
from .lone import has_lone_layers


class ScaledTokens(NamedTuple):
    """Tokens are `values * scales`; no scales stand for ones."""

    values: Tensor  # [num_tokens, width]
    scales: Tensor | None  # [num_tokens] float32


class ScaledAttend(Protocol):
    """`Attend` that applies its tokens' scales."""

    def __call__(self, spec: AttentionSpec, qkv: Tensor, scales: Tensor | None) -> Tensor: ...


def has_fp8_layers(model: Decoder) -> bool:
    """Whether all projections of a finished model are in 8 bits, and its layers of the usual form."""
    if not has_lone_layers(model.config):
        return False
    parts = [part for layer in model.layers for part in (layer.qkv, layer.o, layer.gate_up, layer.down)]
    return all(isinstance(part.weight, Fp8Weight) for part in parts)


class Fp8Layers:
    """Runs the layers of a model that has them in 8 bits; results are in the arena."""

    def __init__(self, model: Decoder, arena: Arena) -> None:
        self._layers = model.layers
        self._eps = model.config.norm_eps
        self._dtype = model.embed.dtype
        self._arena = arena

    def run(self, embedded: Tensor, attend: ScaledAttend) -> tuple[Tensor, Tensor]:
        """What `Decoder.body` computes, from embeddings [num_tokens, hidden_size], which are overwritten."""
        residual, layers = embedded, self._layers
        normed = self._norm(ScaledTokens(residual, None), layers[0].input_norm)
        for layer, next_layer in zip(layers, [*layers[1:], None], strict=True):
            qkv = self._product(normed, layer.qkv)
            attended = self._quantize(attend(layer.attention, *qkv))
            normed = self._norm(self._product(attended, layer.o), layer.post_norm, residual)
            gated = self._silu_mul(self._product(normed, layer.gate_up))
            out = self._product(gated, layer.down)
            if next_layer is not None:
                normed = self._norm(out, next_layer.input_norm, residual)
        if out.scales is not None:
            kernels.scale_tokens(out.values, out.scales)
        return out.values, residual

    def _product(self, tokens: ScaledTokens, linear: Linear) -> ScaledTokens:
        assert isinstance(linear.weight, Fp8Weight)
        values, scales = tokens
        out = self._arena.take("linear", len(values), len(linear.weight.values), self._dtype)
        fp8_product(values, linear.weight, out)
        if linear.bias is None:
            return ScaledTokens(out, scales)
        assert scales is not None
        return ScaledTokens(kernels.scale_tokens(out, scales, bias=linear.bias), None)

    def _quantize(self, x: Tensor) -> ScaledTokens:
        return ScaledTokens(*kernels.quantize_tokens(x, out=take_tokens(self._arena, "attended", *x.shape)))

    def _norm(self, x: ScaledTokens, weight: Tensor, residual: Tensor | None = None) -> ScaledTokens:
        out = take_tokens(self._arena, "normed", *x.values.shape)
        normed = kernels.quantize_rms_norm(
            x.values, weight, self._eps, residual=residual, x_scale=x.scales, out=out
        )
        return ScaledTokens(*normed)

    def _silu_mul(self, x: ScaledTokens) -> ScaledTokens:
        num_tokens, width = x.values.shape
        out = take_tokens(self._arena, "gated", num_tokens, width // 2)
        return ScaledTokens(*kernels.quantize_silu_mul(x.values, x_scale=x.scales, out=out))
