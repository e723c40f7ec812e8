"""Qwen2 and Qwen2.5: a bias on the query, key and value projections."""

from .config import Json, ModelConfig, read_common, refuse_sliding_window


def read(config: Json) -> ModelConfig:
    """Traits of `Qwen2ForCausalLM`."""
    refuse_sliding_window(config, switch="use_sliding_window")
    return read_common(config, qkv_bias=True)
