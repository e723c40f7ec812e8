"""Gemma 3: five layers of six have a window and a rotation of their own; queries and keys are normed."""

from .config import Json, ModelConfig, read_common, read_layer_windows
from .gemma2 import gemma_traits
from .rope import RopeConfig, read_rope

_DEFAULTS = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "tie_word_embeddings": True,
    "max_position_embeddings": 131_072,
}
_WINDOW, _PATTERN = 4096, 6
_THETA, _LOCAL_THETA = 1e6, 1e4


def read(config: Json) -> ModelConfig:
    """Traits of `Gemma3ForCausalLM`."""
    full = {**_DEFAULTS, **config}
    pattern = full.get("sliding_window_pattern", _PATTERN)
    windows = read_layer_windows(full, lambda index: (index + 1) % pattern != 0, default=_WINDOW)
    rope, local_rope = _ropes(full)
    flat = {key: value for key, value in full.items() if key not in ("rope_parameters", "rope_scaling")}
    return read_common(
        flat,
        rope=rope,
        local_rope=local_rope,
        local_layers=frozenset(index for index, window in enumerate(windows) if window),
        windows=windows,
        qk_norm=True,
        **gemma_traits(full),
    )


def _ropes(config: Json) -> tuple[RopeConfig, RopeConfig]:
    """The rotations of full and of sliding layers, in either spelling."""
    both = config.get("rope_parameters") or {}
    full = {"rope_theta": config.get("rope_theta", _THETA), **(both.get("full_attention") or {})}
    full |= config.get("rope_scaling") or {}
    local = {
        "rope_theta": config.get("rope_local_base_freq", _LOCAL_THETA),
        **(both.get("sliding_attention") or {}),
    }
    positions = {"max_position_embeddings": config["max_position_embeddings"]}
    return (
        read_rope({**positions, "rope_parameters": full}, config["head_dim"]),
        read_rope({**positions, "rope_parameters": local}, config["head_dim"]),
    )
