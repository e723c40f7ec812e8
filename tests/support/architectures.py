"""Every supported architecture in small shapes, once for each trait that it can have."""

from typing import Any

from .random_models import VOCAB_SIZE

Config = dict[str, Any]

# Odd numbers of heads, and heads whose size is not hidden_size / num_attention_heads.
SHAPES: dict[str, Config] = {
    "3x24": {"hidden_size": 48, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 24},
    "5x16": {"hidden_size": 80, "num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 16},
    "6x32": {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 32},
}

LAYER_TYPES = ["sliding_attention", "sliding_attention", "full_attention"]

GEMMA: Config = {
    "hidden_act": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 20,
    "sliding_window": 24,
    "sliding_window_pattern": 2,
    "tie_word_embeddings": True,
}
QWEN_EXPERTS: Config = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 40}
PHI: Config = {"pad_token_id": 0, "original_max_position_embeddings": 512}


def traits(architecture: str, model_type: str, **fields: Any) -> Config:
    return {"architectures": [architecture], "model_type": model_type, **{"hidden_act": "silu", **fields}}


MODELS: dict[str, Config] = {
    "llama": traits("LlamaForCausalLM", "llama"),
    "llama-biases": traits("LlamaForCausalLM", "llama", attention_bias=True, mlp_bias=True),
    "llama-tied": traits("LlamaForCausalLM", "llama", tie_word_embeddings=True),
    "mistral": traits("MistralForCausalLM", "mistral", sliding_window=None),
    "mistral-window": traits("MistralForCausalLM", "mistral", sliding_window=21),
    "qwen2": traits("Qwen2ForCausalLM", "qwen2"),
    "qwen2-window": traits(
        "Qwen2ForCausalLM", "qwen2", use_sliding_window=True, sliding_window=24, max_window_layers=1
    ),
    "qwen3": traits("Qwen3ForCausalLM", "qwen3"),
    "mixtral": traits("MixtralForCausalLM", "mixtral", num_local_experts=5, num_experts_per_tok=2),
    "qwen3-moe": traits("Qwen3MoeForCausalLM", "qwen3_moe", **QWEN_EXPERTS, norm_topk_prob=True),
    "qwen3-moe-dense-layer": traits("Qwen3MoeForCausalLM", "qwen3_moe", **QWEN_EXPERTS, mlp_only_layers=[0]),
    "phi3": traits("Phi3ForCausalLM", "phi3", **PHI),
    "phi3-window-partial": traits(
        "Phi3ForCausalLM", "phi3", sliding_window=21, partial_rotary_factor=0.5, **PHI
    ),
    "gemma2": traits("Gemma2ForCausalLM", "gemma2", **GEMMA, attn_logit_softcapping=5.0),
    "gemma2-uncapped": traits(
        "Gemma2ForCausalLM", "gemma2", **GEMMA, attn_logit_softcapping=None, final_logit_softcapping=None
    ),
    "gemma3": traits("Gemma3ForCausalLM", "gemma3_text", **GEMMA, rope_theta=5e5, rope_local_base_freq=1e3),
    "gemma3-rope": traits(
        "Gemma3ForCausalLM",
        "gemma3_text",
        **GEMMA | {"layer_types": LAYER_TYPES, "num_hidden_layers": 3, "tie_word_embeddings": False},
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
        },
    ),
    "qwen3-layer-types": traits(
        "Qwen3ForCausalLM",
        "qwen3",
        use_sliding_window=True,
        sliding_window=17,
        layer_types=LAYER_TYPES,
        num_hidden_layers=3,
    ),
}

HEADS_MAKE_HIDDEN = {"qwen2"}  # no head_dim of its own


def config_of(name: str, shape: str) -> Config:
    config = {**SHAPES[shape], **MODELS[name]}
    if config["model_type"] in HEADS_MAKE_HIDDEN:
        config["hidden_size"] = config["head_dim"] * config["num_attention_heads"]
    return config


def prompt_of(length: int) -> list[int]:
    return [(j * j + 3 * j + length) % VOCAB_SIZE for j in range(length)]
