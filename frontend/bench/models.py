"""Model folders of well-known shapes without weights, for runs with `--load-format dummy`.

python -m octavo.frontend.bench.models FOLDER [NAME ...]
"""

import json
import sys
from pathlib import Path

_COMMON = {
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
    "rms_norm_eps": 1e-6,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.02,
}
_QWEN3_06B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
    "attention_bias": False,
}
_LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 5e5,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
}
_QWEN25_7B = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "rope_theta": 1e6,
    "tie_word_embeddings": False,
}
# The shapes "-49k" have a vocabulary that a small tokenizer covers, for runs over HTTP with text.
SHAPES: dict[str, dict[str, object]] = {
    "qwen3-0.6b": _QWEN3_06B,
    "llama-3.1-8b": _LLAMA_8B,
    "qwen2.5-7b": _QWEN25_7B,
    "qwen3-0.6b-49k": _QWEN3_06B | {"vocab_size": 49152},
    "llama-8b-49k": _LLAMA_8B | {"vocab_size": 49152},
}


def make_model_folder(folder: Path, name: str) -> Path:
    """Write config.json of the shape `name` into FOLDER/NAME and return that folder. Raises KeyError."""
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(SHAPES[name] | _COMMON, indent=1))
    return path


if __name__ == "__main__":
    for shape in sys.argv[2:] or SHAPES:
        make_model_folder(Path(sys.argv[1]), shape)
