"""Mistral: all layers attend to a sliding window (7B v0.1) or to everything (later models)."""

from .config import Json, ModelConfig, read_common, read_windows

_WINDOW = 4096


def read(config: Json) -> ModelConfig:
    """Traits of `MistralForCausalLM`."""
    return read_common(config, windows=read_windows(config, default=_WINDOW))
