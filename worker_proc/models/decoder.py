"""The decoder-only transformer that the supported architectures are traits of."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ..parallel import ALONE, Ranks
from .config import ModelConfig
from .cuts import Cut
from .experts import Experts
from .layers import Attend, AttentionSpec, GatedLinear, InwardLinear, Linear, Ops
from .parameters import Parameters
from .shards import Shard


class Layer:
    """Attention and feed-forward of one layer, each between a norm and a residual add.

    `input_norm` stands before the attention and `post_norm` before the feed-forward; where a model norms what
    comes out of them too, `attended_norm` and `output_norm` do.
    """

    def __init__(self, shard: Shard, params: Parameters, index: int) -> None:
        config = shard.config
        prefix, hidden = f"model.layers.{index}", config.hidden_size
        attn, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        self.input_norm = params.norm(f"{prefix}.input_layernorm.weight", hidden)
        self.attended_norm = self.output_norm = None
        post = f"{prefix}.post_attention_layernorm.weight"
        if config.post_norms:
            self.attended_norm = params.norm(post, hidden)
            self.output_norm = params.norm(f"{prefix}.post_feedforward_layernorm.weight", hidden)
            post = f"{prefix}.pre_feedforward_layernorm.weight"
        self.post_norm = params.norm(post, hidden)
        self.qkv = Linear(params, _qkv_parts(shard, attn), hidden, bias=config.qkv_bias)
        self.o = InwardLinear(
            params, f"{attn}.o_proj", hidden, shard.q, bias=config.o_bias, leads=shard.leads
        )
        self.attention = _attention(config, params, attn, index)
        self._experts: Experts | None = None
        if config.experts is not None and index not in config.experts.dense_layers:
            self._experts = Experts(config.experts, params, prefix, hidden, shard.expert_inner)
            return
        self.gate_up = GatedLinear(
            params,
            _gate_up_parts(shard, mlp),
            hidden,
            bias=config.mlp_bias,
            activation=config.activation,
        )
        self.down = InwardLinear(
            params, f"{mlp}.down_proj", hidden, shard.inner, bias=config.mlp_bias, leads=shard.leads
        )

    def finish(self, ops: Ops) -> None:
        """Bring the loaded weights into the device's form."""
        parts = (self._experts,) if self._experts is not None else (self.gate_up, self.down)
        for part in (self.qkv, self.o, *parts):
            part.finish(ops)

    def feed_forward(self, ops: Ops, x: Tensor) -> Tensor:
        """[num_tokens, hidden_size] from as much, to be summed over the ranks."""
        if self._experts is not None:
            return self._experts(ops, x)
        return self.down(self.gate_up(x))


class Decoder:
    """Tokens to hidden states to logits. Built empty; `finish` follows when its parameters are loaded.

    Attributes:
        config: the model as this rank computes it.
    """

    def __init__(self, shard: Shard, params: Parameters, ranks: Ranks = ALONE) -> None:
        """`ranks` compute the model together; each is given the same tokens."""
        self.config = config = shard.config
        self._ranks = ranks
        self.embed = params.matrix([("model.embed_tokens.weight", config.vocab_size)], config.hidden_size)
        self.layers = [Layer(shard, params, index) for index in range(config.num_layers)]
        self.final_norm = params.norm("model.norm.weight", config.hidden_size)
        head = shard.vocab.of(self.embed)
        if not config.tied_head:
            head = params.matrix([("lm_head.weight", shard.vocab)], config.hidden_size)
        self._head: object = head
        self._norms = params.norms
        self._dtype = params.dtype  # of what projections read; norms with wide weights give float32
        # Rounded as the embeddings are, since models were trained with that.
        self._embed_scale = torch.tensor(config.embed_scale, dtype=params.dtype).item()
        self._ops: Ops

    def finish(self, ops: Ops) -> Iterator[float]:
        """Bring all weights into the device's form, layer by layer; yields the fraction done."""
        self._ops = ops
        if self.config.norm_offset:
            for norm in self._norms:
                norm.add_(self.config.norm_offset)
        for index, layer in enumerate(self.layers):
            layer.finish(ops)
            yield (index + 1) / len(self.layers)
        assert isinstance(self._head, Tensor)
        self._head = ops.pack_head(self._head)

    def body(self, token_ids: Tensor, attend: Attend) -> tuple[Tensor, Tensor]:
        """Run all layers; returns the last layer's output and the residual stream it belongs to.

        Both are [num_tokens, hidden_size]; `hidden` takes those lines of them that logits are wanted for.

        Args:
            token_ids: [num_tokens] int32 or int64.
            attend: the step's attention.
        """
        ops, eps, total = self._ops, self.config.norm_eps, self._ranks.sum
        residual = ops.embed(token_ids, self.embed)
        if self._embed_scale != 1.0:
            residual.mul_(self._embed_scale)
        normed = ops.rms_norm(residual, self.layers[0].input_norm, eps).to(self._dtype)
        for layer, next_layer in zip(self.layers, [*self.layers[1:], None], strict=True):
            attended = total(layer.o(attend(layer.attention, layer.qkv(normed))))
            if layer.attended_norm is not None:
                attended = ops.rms_norm(attended, layer.attended_norm, eps)
            normed = ops.add_rms_norm(attended, residual, layer.post_norm, eps).to(self._dtype)
            out = total(layer.feed_forward(ops, normed))
            if layer.output_norm is not None:
                out = ops.rms_norm(out, layer.output_norm, eps)
            if next_layer is not None:
                normed = ops.add_rms_norm(out, residual, next_layer.input_norm, eps).to(self._dtype)
        return out, residual

    def hidden(self, out: Tensor, residual: Tensor) -> Tensor:
        """Final hidden states [S, hidden_size] of lines [S, hidden_size] of what `body` returned."""
        normed = self._ops.add_rms_norm(out, residual, self.final_norm, self.config.norm_eps)
        return normed.to(self._dtype)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [S, vocab_size] of hidden states [S, hidden_size], in the model's dtype."""
        logits = self._ranks.join(self._ops.linear(hidden, self._head, None), self.config.vocab_size)
        if cap := self.config.logit_softcap:
            logits.div_(cap).tanh_().mul_(cap)
        return logits


def _qkv_parts(shard: Shard, attn: str) -> list[tuple[str, int | Cut]]:
    if shard.config.fused:
        return [(f"{attn}.qkv_proj", shard.qkv)]
    return [(f"{attn}.q_proj", shard.q), (f"{attn}.k_proj", shard.kv), (f"{attn}.v_proj", shard.kv)]


def _gate_up_parts(shard: Shard, mlp: str) -> list[tuple[str, int | Cut]]:
    if shard.config.fused:
        return [(f"{mlp}.gate_up_proj", shard.gate_up)]
    return [(f"{mlp}.{name}", shard.inner) for name in ("gate_proj", "up_proj")]


def _attention(config: ModelConfig, params: Parameters, attn: str, index: int) -> AttentionSpec:
    normed = config.qk_norm
    return AttentionSpec(
        layer=index,
        group=next(at for at, group in enumerate(config.groups) if index in group.layers),
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        scale=config.attention_scale or config.head_dim**-0.5,
        norm_eps=config.norm_eps,
        rope=int(index in config.local_layers),
        softcap=config.attention_softcap,
        q_norm=params.norm(f"{attn}.q_norm.weight", config.head_dim) if normed else None,
        k_norm=params.norm(f"{attn}.k_norm.weight", config.head_dim) if normed else None,
    )
