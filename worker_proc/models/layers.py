"""The building blocks of decoders, on whichever device the operators run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from .cuts import Cut
from .parameters import Parameters


class Ops(Protocol):
    """The operators a device brings. Shapes and formulas are those of `octavo.kernels.reference`."""

    def pack_linear(self, weight: Tensor) -> Any:
        """A weight [out, in] in the form that `linear` reads fastest."""

    def pack_gated(self, weight: Tensor) -> Any:
        """A weight [2 * out, in], the gate half first, in the form that `gated_linear` reads fastest."""

    def pack_head(self, weight: Tensor) -> Any:
        """The weight [vocab_size, hidden_size] of the logits, which may be the embeddings', for `linear`."""

    def embed(self, token_ids: Tensor, table: Tensor) -> Tensor:
        """Lines of `table` [vocab_size, hidden_size], in memory that the layers may add to."""

    def linear(self, x: Tensor, packed: Any, bias: Tensor | None) -> Tensor:
        """`x W^T + b`, [num_tokens, out]."""

    def gated_linear(self, x: Tensor, packed: Any, bias: Tensor | None, activation: str) -> Tensor:
        """`activation(gate) * up` of `x W^T + b`, [num_tokens, out]."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor: ...

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor: ...

    def route(self, logits: Tensor, *, top_k: int, renormalize: bool) -> Any: ...

    def mix_experts(self, x: Tensor, routes: Any, gate_up: Sequence[Any], down: Sequence[Any]) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """What one attention layer is, for the device's attention."""

    layer: int
    group: int  # KV group
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    norm_eps: float
    rope: int = 0  # which of the model's rotary embeddings
    softcap: float = 0.0  # scores are softcap * tanh(scores / softcap); 0 is off
    q_norm: Tensor | None = None  # [head_dim], applied to each query head before the rotation
    k_norm: Tensor | None = None


class Attend(Protocol):
    """A step's attention: rotates, writes keys and values to the cache and attends."""

    def __call__(self, spec: AttentionSpec, qkv: Tensor) -> Tensor:
        """[num_tokens, q_size] from the fused projection [num_tokens, q_size + 2 * kv_size], overwritten."""


class Linear:
    """A projection made of one or several named parts that read the same input."""

    def __init__(
        self,
        params: Parameters,
        parts: Sequence[tuple[str, int | Cut]],
        in_features: int | Cut,
        *,
        bias: bool,
    ) -> None:
        self.weight: object = params.matrix([(f"{name}.weight", rows) for name, rows in parts], in_features)
        self.bias = params.matrix([(f"{name}.bias", rows) for name, rows in parts]) if bias else None
        self._ops: Ops

    def finish(self, ops: Ops) -> None:
        """Bring the loaded weight into the device's form."""
        assert isinstance(self.weight, Tensor)
        self.weight = ops.pack_linear(self.weight)
        self._ops = ops

    def __call__(self, x: Tensor) -> Tensor:
        return self._ops.linear(x, self.weight, self.bias)


class InwardLinear(Linear):
    """A projection whose inputs are spread over the ranks: the sum of what they give is its output."""

    def __init__(
        self, params: Parameters, name: str, out_features: int, inputs: Cut, *, bias: bool, leads: bool
    ) -> None:
        """`leads`: this rank adds the bias."""
        super().__init__(params, [(name, out_features)], inputs.across(), bias=bias)
        if not leads:
            self.bias = None


class GatedLinear(Linear):
    """The gate and the up projection of a feed-forward, and `activation(gate) * up`."""

    def __init__(
        self,
        params: Parameters,
        parts: Sequence[tuple[str, int | Cut]],
        in_features: int,
        *,
        bias: bool,
        activation: str,
    ) -> None:
        super().__init__(params, parts, in_features, bias=bias)
        self._activation = activation

    def finish(self, ops: Ops) -> None:
        assert isinstance(self.weight, Tensor)
        self.weight = ops.pack_gated(self.weight)
        self._ops = ops

    def __call__(self, x: Tensor) -> Tensor:
        return self._ops.gated_linear(x, self.weight, self.bias, self._activation)
