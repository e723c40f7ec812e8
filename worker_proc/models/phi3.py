"""Phi-3 and Phi-4: Llama's layers with their projections stored as one, and heads that may rotate in part."""

from .config import Json, ModelConfig, read_common, read_windows


def read(config: Json) -> ModelConfig:
    """Traits of `Phi3ForCausalLM`."""
    return read_common(config, fused=True, windows=read_windows(config))
