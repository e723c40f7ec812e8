"""A GGUF file becomes a model folder that transformers reads as it reads the file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from octavo.frontend.gguf import UnsupportedGgufError, convert_gguf
from octavo.tests.support.models import CHATML, make_ctx_model

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.layers.": "blk.",
}


def gguf_name(name: str) -> str:
    for theirs, ours in NAMES.items():
        name = name.replace(theirs, ours)
    return name


def write_gguf(path: Path, model: Path, *, quantization: GGMLQuantizationType, **metadata: Any) -> None:
    """Write the CTX model in `model` as a GGUF; `metadata` replaces string entries (`__` for a dot)."""
    config = json.loads((model / "config.json").read_text())
    tokenizer = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    vocab = tokenizer["model"]["vocab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(sorted(vocab, key=vocab.__getitem__))
    writer.add_token_types([3 if index < 3 else 1 for index in range(len(vocab))])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(CHATML)
    for key, value in metadata.items():
        writer.add_string(key.replace("__", "."), value)
    for name, tensor in load_file(model / "model.safetensors").items():
        values = tensor.numpy()
        for kind, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if kind in name:
                halves = values.reshape(config[heads], 2, -1, values.shape[1])
                values = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
        kept = quantization if values.ndim == 2 else GGMLQuantizationType.F32
        writer.add_tensor(gguf_name(name), quantize(values, kept), raw_dtype=kept)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ctx_model(tmp_path_factory.mktemp("ctx"))


@pytest.mark.parametrize("quantization", [GGMLQuantizationType.F32, GGMLQuantizationType.Q4_1])
def test_the_folder_is_what_transformers_reads_from_the_file(
    tmp_path: Path, model: Path, quantization: GGMLQuantizationType
) -> None:
    write_gguf(tmp_path / "model.gguf", model, quantization=quantization)
    folder, sizes = tmp_path / "folder", []
    folder.mkdir()
    convert_gguf(tmp_path / "model.gguf", folder, on_tensor=sizes.append)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.bfloat16)
    ours = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    assert ours.dtype is torch.bfloat16
    expected, found = theirs.state_dict(), ours.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert sum(sizes) == sum(
        2 * tensor.numel() for tensor in load_file(folder / "model.safetensors").values()
    )
    for key in ("rope_parameters", "rms_norm_eps", "max_position_embeddings", "tie_word_embeddings"):
        assert getattr(ours.config, key) == pytest.approx(getattr(theirs.config, key))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "the cat 12 😀<|im_end|>"
    assert (
        tokenizer(text).input_ids
        == AutoTokenizer.from_pretrained(tmp_path, gguf_file="model.gguf")(text).input_ids
    )
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.chat_template) == (1, 2, CHATML)


def test_weights_that_were_exact_stay_exact(tmp_path: Path, model: Path) -> None:
    write_gguf(tmp_path / "model.gguf", model, quantization=GGMLQuantizationType.F32)
    convert_gguf(tmp_path / "model.gguf", tmp_path)
    original, converted = load_file(model / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    assert original.keys() == converted.keys()
    for name, tensor in original.items():
        assert torch.equal(converted[name], tensor.to(torch.bfloat16)), name


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"general__architecture": "mamba"}, "mamba"),
        ({"tokenizer__ggml__model": "rwkv"}, "rwkv"),
        ({"tokenizer__ggml__pre": "unheard-of"}, "unheard-of"),
        ({"llama__rope__scaling__type": "yarn"}, "RoPE scaling"),
    ],
)
def test_what_is_not_known_is_refused_by_name(
    tmp_path: Path, model: Path, metadata: dict[str, str], named: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write_gguf(tmp_path / "model.gguf", model, quantization=GGMLQuantizationType.F32, **metadata)
    with pytest.raises(UnsupportedGgufError, match=named):
        convert_gguf(tmp_path / "model.gguf", folder)
    assert list(folder.iterdir()) == []
