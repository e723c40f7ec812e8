"""Qwen3-MoE: Qwen3's attention, and many small experts in most layers."""

from .config import Json, ModelConfig, positive, read_common, read_windows
from .experts import ExpertsConfig

_DEFAULTS = {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
_WINDOW = 4096


def read(config: Json) -> ModelConfig:
    """Traits of `Qwen3MoeForCausalLM`."""
    full = {**_DEFAULTS, **config}
    bias = bool(full.get("attention_bias", False))
    experts = ExpertsConfig(
        count=positive(full, "num_experts"),
        per_token=positive(full, "num_experts_per_tok"),
        intermediate_size=positive(full, "moe_intermediate_size"),
        renormalize=bool(full.get("norm_topk_prob", False)),
        block="mlp",
        gate="gate_proj",
        up="up_proj",
        down="down_proj",
        dense_layers=_dense_layers(full),
    )
    windows = read_windows(full, default=_WINDOW) if full.get("use_sliding_window") else ()
    return read_common(full, qkv_bias=bias, o_bias=bias, qk_norm=True, experts=experts, windows=windows)


def _dense_layers(config: Json) -> frozenset[int]:
    named, every = config.get("mlp_only_layers") or [], positive(config, "decoder_sparse_step", 1)
    count = positive(config, "num_hidden_layers")
    return frozenset(index for index in range(count) if index in named or (index + 1) % every)
