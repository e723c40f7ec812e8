"""What config.json says wrongly of windows and experts is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.protocol.errors import ModelError
from octavo.worker_proc.models import read_config

SIZES = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
SLIDES = {"use_sliding_window": True, "sliding_window": 16}


def read(folder: Path, architecture: str, **fields: Any) -> Any:
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture], **SIZES, **fields}))
    return read_config(folder)


@pytest.mark.parametrize(
    ("architecture", "fields", "named"),
    [
        ("MistralForCausalLM", {"sliding_window": -1}, "sliding_window must be a positive integer, got -1"),
        ("MistralForCausalLM", {"sliding_window": "wide"}, "sliding_window .*'wide'"),
        ("Qwen2ForCausalLM", {**SLIDES, "layer_types": ["full_attention"]}, "layer_types .*2 layers"),
        ("Qwen3ForCausalLM", {**SLIDES, "layer_types": ["full_attention", "chunked"]}, "layer_types"),
        ("MixtralForCausalLM", {"num_local_experts": 0}, "num_local_experts"),
        ("MixtralForCausalLM", {"num_experts_per_tok": 9}, r"num_experts_per_tok \(9\) .* 8 experts"),
        ("Qwen3MoeForCausalLM", {"moe_intermediate_size": None}, "moe_intermediate_size"),
        ("Gemma3ForCausalLM", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("Gemma2ForCausalLM", {"hidden_activation": "relu"}, "hidden_activation 'relu'"),
        ("Phi3ForCausalLM", {"rope_scaling": {"type": "longrope"}}, "longrope"),
    ],
)
def test_a_wrong_entry_is_named(
    tmp_path: Path, architecture: str, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(ModelError, match=named) as caught:
        read(tmp_path, architecture, **fields)
    assert "\n" not in str(caught.value)


def test_windows_have_the_defaults_of_transformers(tmp_path: Path) -> None:
    assert read(tmp_path, "MistralForCausalLM").windows == (4096, 4096)
    assert read(tmp_path, "MistralForCausalLM", sliding_window=None).windows == ()
    assert read(tmp_path, "Qwen2ForCausalLM", sliding_window=16).windows == ()
    assert read(tmp_path, "Qwen2ForCausalLM", **SLIDES, max_window_layers=1).windows == (0, 16)
    assert read(tmp_path, "Gemma2ForCausalLM").windows == (4096, 0)
    assert read(tmp_path, "Gemma2ForCausalLM").within(4096).windows == (0, 0)
    assert read(tmp_path, "Gemma3ForCausalLM", sliding_window=512).windows == (512, 512)
