"""Qwen3: queries and keys are normed head by head, and head_dim stands on its own."""

from .config import Json, ModelConfig, read_common, refuse_sliding_window

_HEAD_DIM = 128


def read(config: Json) -> ModelConfig:
    """Traits of `Qwen3ForCausalLM`."""
    refuse_sliding_window(config, switch="use_sliding_window")
    bias = bool(config.get("attention_bias", False))
    full = {**config, "head_dim": config.get("head_dim", _HEAD_DIM)}
    return read_common(full, qkv_bias=bias, o_bias=bias, qk_norm=True)
