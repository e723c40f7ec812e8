"""Qwen2 and Qwen2.5: a bias on the query, key and value projections; upper layers may have a window."""

from .config import Json, ModelConfig, read_common, read_layer_windows

_WINDOW, _MAX_WINDOW_LAYERS = 4096, 28


def read(config: Json) -> ModelConfig:
    """Traits of `Qwen2ForCausalLM`."""
    return read_common(config, qkv_bias=True, windows=read_upper_windows(config))


def read_upper_windows(config: Json) -> tuple[int, ...]:
    """Windows from layer `max_window_layers` on, where `use_sliding_window` says that there are any."""
    if not config.get("use_sliding_window", False):
        return ()
    first = int(config.get("max_window_layers", _MAX_WINDOW_LAYERS))
    return read_layer_windows(config, lambda index: index >= first, default=_WINDOW)
