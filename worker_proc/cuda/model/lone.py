"""The layers of a step of one token, which is how fast the weights can be read.

Six launches a layer instead of nine: norms, SwiGLU and residual adds are parts of matrix-vector products.
Each launch begins while the one in front ends, and requests its first weights before it waits for it.
"""

from torch import Tensor

from ...models import Decoder
from ...models.config import ModelConfig
from ...models.layers import Attend
from .ops import CudaOps


def has_lone_layers(config: ModelConfig) -> bool:
    """Whether a model's layers are of the form that `lone_body` runs."""
    special = config.post_norms or config.experts is not None or config.embed_scale != 1.0
    return not special and config.activation == "silu"


def lone_body(model: Decoder, ops: CudaOps, token_ids: Tensor, attend: Attend) -> tuple[Tensor, Tensor]:
    """What `Decoder.body` computes for one token, in the same buffers: [1, hidden_size] each."""
    eps = model.config.norm_eps
    residual = ops.embed(token_ids, model.embed)
    out = residual
    for index, layer in enumerate(model.layers):
        attended = attend(layer.attention, ops.gemv(residual, layer.qkv, norm=(layer.input_norm, eps)))
        ops.gemv(attended, layer.o, residual=residual)
        gated = ops.gemv(residual, layer.gate_up, norm=(layer.post_norm, eps), swiglu=True)
        is_last = index + 1 == len(model.layers)
        out = ops.gemv(gated, layer.down, residual=None if is_last else residual)
    return out, residual
