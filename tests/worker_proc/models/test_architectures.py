"""Every architecture with random weights beside transformers, in float32: logits, and greedy tokens."""

from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.worker_proc.cpu.runner import CpuRunner

from ...support.cpu_runner import make_cpu_runner
from ...support.driver import Choice, Driver
from ...support.random_models import VOCAB_SIZE, forward, make_random_model

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


def keep_logits(runner: CpuRunner) -> list[torch.Tensor]:
    """What the model gives from now on: [rows that sample, vocab] for each step."""
    kept: list[torch.Tensor] = []
    original = runner._model.logits

    def logits(hidden: torch.Tensor) -> torch.Tensor:
        kept.append(original(hidden).clone())
        return kept[-1]

    runner._model.logits = logits  # type: ignore[method-assign]
    return kept


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", MODELS)
def test_logits_equal_transformers(tmp_path: Path, name: str, shape: str) -> None:
    model = make_random_model(tmp_path, config_of(name, shape))
    runner = make_cpu_runner(tmp_path, max_model_len=128, num_blocks=24)
    driver, logits, prompt = Driver(runner), keep_logits(runner), prompt_of(50)
    output = driver.generate([driver.add(prompt)], 30, chunk=16)[0]
    truth = forward(model, prompt + output)[len(prompt) - 1 : -1]
    found = torch.cat(logits)
    assert float((found - truth).norm() / truth.norm()) < 1e-4
    assert output == truth.argmax(-1).tolist()


@pytest.mark.parametrize("name", MODELS)
def test_tokens_do_not_depend_on_how_the_work_is_cut(tmp_path: Path, name: str) -> None:
    """Rows of several lengths together, in chunks, behind a cached prefix, and taken up again."""
    make_random_model(tmp_path, config_of(name, "6x32"))
    driver = Driver(make_cpu_runner(tmp_path, max_model_len=128))
    lengths = [1, 15, 16, 33, 70]

    def add_all() -> list[Choice]:
        return [driver.add(prompt_of(length)) for length in lengths]

    whole = driver.generate(add_all(), 40)
    assert driver.generate(add_all(), 40, chunk=16) == whole
    first = driver.add(prompt_of(70))
    driver.step()
    behind = driver.add(prompt_of(70), shared=first, num_shared=48)
    assert driver.generate([behind], 40)[0] == whole[-1]
    again = driver.add(prompt_of(33), output=whole[3][:25])
    assert driver.generate([again], 40)[0] == whole[3]


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16_stays_near_float32(tmp_path: Path, name: str) -> None:
    model = make_random_model(tmp_path, config_of(name, "6x32"), spread=0.1)
    runner = make_cpu_runner(tmp_path, max_model_len=128, dtype="bfloat16")
    driver, logits, prompt = Driver(runner), keep_logits(runner), prompt_of(50)
    driver.generate([driver.add(prompt)], 1, chunk=16)
    truth = forward(model, prompt)[-1]
    assert float((logits[0][0].float() - truth).norm() / truth.norm()) < 0.1
