"""GGUF metadata -> config.json and generation_config.json."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .file import GgufFile, UnsupportedGgufError

_SPECIAL_ID_KEYS = {
    "bos_token_id": "tokenizer.ggml.bos_token_id",
    "eos_token_id": "tokenizer.ggml.eos_token_id",
    "pad_token_id": "tokenizer.ggml.padding_token_id",
}


def model_config(file: GgufFile) -> dict[str, Any]:
    """The content of config.json for the model in `file`.

    Raises `UnsupportedGgufError` for architectures and RoPE scalings that are not known here.
    """
    if file.architecture not in _READERS:
        raise UnsupportedGgufError(f"{file.path.name}: no support for the architecture {file.architecture!r}")
    _refuse_rope_scaling(file)
    num_heads = file.hparam("attention.head_count", int)
    hidden_size = file.hparam("embedding_length", int)
    prefix = file.architecture
    return {
        "vocab_size": len(file.require("tokenizer.ggml.tokens", list)),
        "hidden_size": hidden_size,
        "intermediate_size": file.hparam("feed_forward_length", int),
        "num_hidden_layers": file.hparam("block_count", int),
        "num_attention_heads": num_heads,
        "num_key_value_heads": file.metadata.get(f"{prefix}.attention.head_count_kv", num_heads),
        "head_dim": file.metadata.get(f"{prefix}.attention.key_length", hidden_size // num_heads),
        "max_position_embeddings": file.hparam("context_length", int),
        "rms_norm_eps": _shortest(file.hparam("attention.layer_norm_rms_epsilon", float)),
        "attention_bias": False,
        "tie_word_embeddings": "output.weight" not in file.tensor_names(),
        "torch_dtype": "bfloat16",
        **_READERS[file.architecture](file),
        **special_token_ids(file),
    }


def _llama(file: GgufFile) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "rope_theta": _shortest(file.metadata.get("llama.rope.freq_base", 10000.0)),
        "hidden_act": "silu",
        "mlp_bias": False,
    }


def _gemma3(file: GgufFile) -> dict[str, Any]:
    head_dim = file.hparam("attention.key_length", int)
    is_27b = file.hparam("block_count", int) == 62  # the file does not say how scores are scaled
    per_head = file.hparam("embedding_length", int) // file.hparam("attention.head_count", int)
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "rope_theta": _shortest(file.metadata.get("gemma3.rope.freq_base", 1e6)),
        "rope_local_base_freq": 10000.0,
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": file.hparam("attention.sliding_window", int),
        "sliding_window_pattern": 6,
        "query_pre_attn_scalar": per_head if is_27b else head_dim,
    }


_READERS: dict[str, Callable[[GgufFile], dict[str, Any]]] = {"gemma3": _gemma3, "llama": _llama}


def generation_config(file: GgufFile) -> dict[str, Any]:
    """The content of generation_config.json: the special token ids."""
    return dict(special_token_ids(file))


def special_token_ids(file: GgufFile) -> dict[str, int]:
    """The ids of bos, eos and pad that the file names, under Hugging Face's names."""
    return {name: file.metadata[key] for name, key in _SPECIAL_ID_KEYS.items() if key in file.metadata}


def _refuse_rope_scaling(file: GgufFile) -> None:
    scaling = file.metadata.get(f"{file.architecture}.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in file.tensor_names():
        raise UnsupportedGgufError(f"{file.path.name}: RoPE scaling is not supported in GGUF files")


def _shortest(value: float) -> float:
    """Undo the widening of a float32: 9.999999747378752e-06 was written as 1e-05."""
    return float(str(np.float32(value)))
