"""Llama 1 to 3.x, and the many models that took its shape (SmolLM2, TinyLlama, Yi, ...)."""

from .config import Json, ModelConfig, read_common


def read(config: Json) -> ModelConfig:
    """Traits of `LlamaForCausalLM`."""
    bias = bool(config.get("attention_bias", False))
    return read_common(config, qkv_bias=bias, o_bias=bias, mlp_bias=bool(config.get("mlp_bias", False)))
