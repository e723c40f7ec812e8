"""Mistral models whose layers attend to everything (7B v0.2 and later)."""

from .config import Json, ModelConfig, read_common, refuse_sliding_window


def read(config: Json) -> ModelConfig:
    """Traits of `MistralForCausalLM`."""
    refuse_sliding_window(config)
    return read_common(config)
