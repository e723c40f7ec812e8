"""Gemma 2: every other layer has a window, scores and logits are capped, and each part ends with a norm."""

from typing import Any

from ...protocol.errors import ModelError
from .config import Json, ModelConfig, read_common, read_layer_windows

_DEFAULTS = {
    "hidden_activation": "gelu_pytorch_tanh",
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "tie_word_embeddings": True,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
_WINDOW = 4096


def read(config: Json) -> ModelConfig:
    """Traits of `Gemma2ForCausalLM`."""
    full = {**_DEFAULTS, **config}
    windows = read_layer_windows(full, lambda index: index % 2 == 0, default=_WINDOW)
    return read_common(full, windows=windows, **gemma_traits(full))


def gemma_traits(config: Json) -> dict[str, Any]:
    """What Gemma 2 and 3 share. `config` has all entries that are read here but the caps."""
    if config.get("use_bidirectional_attention"):
        raise ModelError("config.json: use_bidirectional_attention makes no text, and is not supported")
    bias = bool(config.get("attention_bias", False))
    return {
        "qkv_bias": bias,
        "o_bias": bias,
        "norm_offset": 1.0,
        "post_norms": True,
        "embed_scale": config["hidden_size"] ** 0.5,
        "attention_scale": config["query_pre_attn_scalar"] ** -0.5,
        "attention_softcap": config.get("attn_logit_softcapping") or 0.0,
        "logit_softcap": config.get("final_logit_softcapping") or 0.0,
    }
