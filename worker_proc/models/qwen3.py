"""Qwen3: queries and keys are normed head by head, and head_dim stands on its own."""

from .config import Json, ModelConfig, read_common
from .qwen2 import read_upper_windows

_HEAD_DIM = 128


def read(config: Json) -> ModelConfig:
    """Traits of `Qwen3ForCausalLM`."""
    bias = bool(config.get("attention_bias", False))
    full = {**config, "head_dim": config.get("head_dim", _HEAD_DIM)}
    return read_common(full, qkv_bias=bias, o_bias=bias, qk_norm=True, windows=read_upper_windows(config))
