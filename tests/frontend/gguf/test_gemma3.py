"""Gemma 3 in GGUF: norms one less, layers under other names, and a SentencePiece vocabulary."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from safetensors.torch import load_file
from tokenizers import Tokenizer

from octavo.frontend.engine.args import EngineArgs
from octavo.frontend.engine.resolve import resolve_model
from octavo.frontend.gguf import gguf_folder
from octavo.protocol.errors import ModelError

from ...support.random_models import make_random_model

SIZES = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "query_pre_attn_scalar": 32,
    "sliding_window": 16,
    "num_hidden_layers": 2,
    "tie_word_embeddings": True,
}
NAMES = [
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("model.layers.", "blk."),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
]
# (piece, score, kind): control 3, unknown 2, bytes 6, user-defined 4.
PIECES = [("<pad>", 0.0, 3), ("<eos>", 0.0, 3), ("<bos>", 0.0, 3), ("<unk>", 0.0, 2)]
PIECES += [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
PIECES += [("▁", -9.0, 1), *((letter, -9.0, 1) for letter in "abcdl")]
PIECES += [("ab", -1.0, 1), ("bc", -2.0, 1), ("▁a", -3.0, 1), ("▁ab", -4.0, 1), ("\n\n", -5.0, 4)]


def write_gguf(path: Path, model: Path) -> None:
    writer = GGUFWriter(path, "gemma3")
    writer.add_context_length(512)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(80)
    writer.add_head_count(4)
    writer.add_head_count_kv(1)
    writer.add_key_length(32)
    writer.add_sliding_window(16)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e6)
    writer.add_tokenizer_model("llama")
    pieces, scores, kinds = zip(*PIECES, strict=True)
    writer.add_token_list(list(pieces))
    writer.add_token_scores(list(scores))
    writer.add_token_types(list(kinds))
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    for name, tensor in load_file(model / "model.safetensors").items():
        values = tensor.numpy() + np.float32(name.endswith("norm.weight"))
        for theirs, ours in NAMES:
            name = name.replace(theirs, ours)
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A random model's folder, and the one made from its GGUF."""
    home = tmp_path_factory.mktemp("gemma3")
    make_random_model(home / "model", {**SIZES, "vocab_size": len(PIECES)})
    write_gguf(home / "model.gguf", home / "model")
    return home / "model", gguf_folder(home / "model.gguf", home / "cache")


def test_weights_and_sizes_are_those_of_the_model(converted: tuple[Path, Path]) -> None:
    original, found = (load_file(folder / "model.safetensors") for folder in converted)
    assert found.keys() == original.keys()
    for name, tensor in original.items():
        assert torch.equal(found[name], tensor.to(torch.bfloat16)) or (
            name.endswith("norm.weight") and torch.allclose(found[name].float(), tensor, atol=1e-2)
        ), name
    config = json.loads((converted[1] / "config.json").read_text())
    assert {key: config[key] for key in SIZES} == SIZES


def test_text_is_cut_by_score_and_comes_back(converted: tuple[Path, Path]) -> None:
    tokenizer = Tokenizer.from_file(str(converted[1] / "tokenizer.json"))
    # ab is joined before bc is; " a" before " ab" cannot be made of it.
    for text, tokens in {
        "abc": ["ab", "c"],
        "bcd": ["bc", "d"],
        "l ab": ["l", "▁ab"],
        "a\n\nb": ["a", "\n\n", "b"],
        "é": ["<0xC3>", "<0xA9>"],
        "<eos>a": ["<eos>", "a"],
    }.items():
        encoded = tokenizer.encode(text, add_special_tokens=False)
        assert encoded.tokens == tokens
        assert tokenizer.decode(encoded.ids, skip_special_tokens=False) == text


def test_the_file_is_a_model_that_can_be_named(
    converted: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    resolved = resolve_model(EngineArgs(model=str(converted[0].parent / "model.gguf")))
    assert (resolved.vocab_size, resolved.max_model_len, resolved.eos_token_ids) == (len(PIECES), 512, (1,))
    assert resolved.path.is_relative_to(tmp_path)


def test_a_file_that_is_no_gguf_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"nothing of the kind" * 9)
    with pytest.raises(ModelError, match=r"x\.gguf cannot be read") as caught:
        gguf_folder(tmp_path / "x.gguf", tmp_path / "cache")
    assert "\n" not in str(caught.value)
