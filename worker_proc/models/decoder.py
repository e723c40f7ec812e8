"""The decoder-only transformer that the supported architectures are traits of."""

from collections.abc import Iterator

from torch import Tensor

from .config import ModelConfig
from .layers import Attend, AttentionSpec, Linear, Ops
from .parameters import Parameters


class Layer:
    """Attention and feed-forward of one layer, each between a norm and a residual add."""

    def __init__(self, config: ModelConfig, params: Parameters, index: int) -> None:
        prefix = f"model.layers.{index}"
        attn, mlp, hidden = f"{prefix}.self_attn", f"{prefix}.mlp", config.hidden_size
        self.input_norm = params.vector(f"{prefix}.input_layernorm.weight", hidden)
        self.post_norm = params.vector(f"{prefix}.post_attention_layernorm.weight", hidden)
        qkv = [
            (f"{attn}.q_proj", config.q_size),
            (f"{attn}.k_proj", config.kv_size),
            (f"{attn}.v_proj", config.kv_size),
        ]
        gate_up = [(f"{mlp}.{name}", config.intermediate_size) for name in ("gate_proj", "up_proj")]
        self.qkv = Linear(params, qkv, hidden, bias=config.qkv_bias)
        self.o = Linear(params, [(f"{attn}.o_proj", hidden)], config.q_size, bias=config.o_bias)
        self.gate_up = Linear(params, gate_up, hidden, bias=config.mlp_bias)
        self.down = Linear(
            params, [(f"{mlp}.down_proj", hidden)], config.intermediate_size, bias=config.mlp_bias
        )
        self.attention = AttentionSpec(
            layer=index,
            group=next(at for at, group in enumerate(config.groups) if index in group.layers),
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            scale=config.head_dim**-0.5,
            norm_eps=config.norm_eps,
            q_norm=params.vector(f"{attn}.q_norm.weight", config.head_dim) if config.qk_norm else None,
            k_norm=params.vector(f"{attn}.k_norm.weight", config.head_dim) if config.qk_norm else None,
        )


class Decoder:
    """Tokens to hidden states to logits. Built empty; `finish` follows when its parameters are loaded."""

    def __init__(self, config: ModelConfig, params: Parameters) -> None:
        self.config = config
        self.embed = params.matrix([("model.embed_tokens.weight", config.vocab_size)], config.hidden_size)
        self.layers = [Layer(config, params, index) for index in range(config.num_layers)]
        self.final_norm = params.vector("model.norm.weight", config.hidden_size)
        head = self.embed
        if not config.tied_head:
            head = params.matrix([("lm_head.weight", config.vocab_size)], config.hidden_size)
        self._head: object = head
        self._ops: Ops

    def finish(self, ops: Ops) -> Iterator[float]:
        """Bring all weights into the device's form, layer by layer; yields the fraction done."""
        self._ops = ops
        for index, layer in enumerate(self.layers):
            for linear in (layer.qkv, layer.o, layer.gate_up, layer.down):
                linear.finish(ops)
            yield (index + 1) / len(self.layers)
        assert isinstance(self._head, Tensor)
        self._head = ops.pack_linear(self._head)

    def body(self, token_ids: Tensor, attend: Attend) -> tuple[Tensor, Tensor]:
        """Run all layers; returns the last layer's output and the residual stream it belongs to.

        Both are [num_tokens, hidden_size]; `hidden` takes those lines of them that logits are wanted for.

        Args:
            token_ids: [num_tokens] int32 or int64.
            attend: the step's attention.
        """
        ops, eps = self._ops, self.config.norm_eps
        residual = ops.embed(token_ids, self.embed)
        normed = ops.rms_norm(residual, self.layers[0].input_norm, eps)
        for layer, next_layer in zip(self.layers, [*self.layers[1:], None], strict=True):
            attended = layer.o(attend(layer.attention, layer.qkv(normed)))
            normed = ops.add_rms_norm(attended, residual, layer.post_norm, eps)
            out = layer.down(ops.silu_mul(layer.gate_up(normed)))
            if next_layer is not None:
                normed = ops.add_rms_norm(out, residual, next_layer.input_norm, eps)
        return out, residual

    def hidden(self, out: Tensor, residual: Tensor) -> Tensor:
        """Final hidden states [S, hidden_size] of lines [S, hidden_size] of what `body` returned."""
        return self._ops.add_rms_norm(out, residual, self.final_norm, self.config.norm_eps)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [S, vocab_size] of hidden states [S, hidden_size], in the model's dtype."""
        return self._ops.linear(hidden, self._head, None)
