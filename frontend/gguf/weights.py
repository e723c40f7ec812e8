"""GGUF tensors -> one bf16 safetensors file, one tensor in memory at a time."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .file import GgufFile, GgufTensor, UnsupportedGgufError
from .safetensors_file import TensorInfo, write_safetensors_file

_GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# What Gemma 3 calls otherwise, or has beside these.
_GEMMA3_NAMES = {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_LAYER_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.weight")


def write_weights(
    file: GgufFile, config: dict[str, Any], path: Path, on_tensor: Callable[[int], object] = lambda size: None
) -> None:
    """Write every tensor of `file` to the safetensors file `path`: bfloat16, under Hugging Face's names.

    `config` is the model's config.json (head counts). `on_tensor` is called with each tensor's size in bytes
    once it is converted. Raises `UnsupportedGgufError` for a tensor that is not known.
    """
    names = _LAYER_NAMES | (_GEMMA3_NAMES if file.architecture == "gemma3" else {})
    tensors = [(_hugging_face_name(tensor.name, names), tensor) for tensor in file.tensors()]
    infos = [TensorInfo(name, "BF16", tensor.shape) for name, tensor in tensors]

    def contents() -> Iterator[bytes]:
        for name, tensor in tensors:
            data = to_bfloat16(_restored(name, tensor, config)).tobytes()
            on_tensor(len(data))
            yield data

    write_safetensors_file(path, infos, contents())


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to the nearest bfloat16, ties to even; returns the bit patterns, same shape."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    # The carry of a NaN with a full mantissa would run into the sign: keep NaNs quiet instead.
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def unpermute_rope(weight: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """Undo the row order of GGUF's llama q and k projections, `[num_heads * head_dim, hidden]`.

    GGUF interleaves the two halves of each head so that rotated pairs lie side by side; Hugging Face rotates
    the first half against the second.
    """
    half = weight.shape[0] // num_heads // 2
    pairs = weight.reshape(num_heads, half, 2, *weight.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(weight.shape))


def _hugging_face_name(name: str, layer_names: dict[str, str]) -> str:
    if name in _GLOBAL_NAMES:
        return _GLOBAL_NAMES[name]
    match = _LAYER_TENSOR.fullmatch(name)
    if match is None or match[2] not in layer_names:
        raise UnsupportedGgufError(f"the tensor {name!r} has no place in a model of this architecture")
    return f"model.layers.{match[1]}.{layer_names[match[2]]}.weight"


def _restored(name: str, tensor: GgufTensor, config: dict[str, Any]) -> NDArray[np.float32]:
    """The tensor's values as Hugging Face has them: rows in another order, or norms one less."""
    values = tensor.to_float32()
    if config["model_type"] == "gemma3_text":
        return values - 1.0 if name.endswith("norm.weight") else values
    if name.endswith("q_proj.weight"):
        return unpermute_rope(values, config["num_attention_heads"])
    if name.endswith("k_proj.weight"):
        return unpermute_rope(values, config["num_key_value_heads"])
    return values
