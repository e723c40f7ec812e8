"""Small models with known answers, written as complete Hugging Face folders with NumPy alone.

TOK-B is a byte-level tokenizer, TOK-S a SentencePiece-like one. The SCRIPT model's next token depends only
on its last token, so its output is known exactly. The CTX model is random and depends on the whole context.
Each folder loads in transformers and in Octavo.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from octavo.frontend.gguf.safetensors_file import TensorInfo, write_safetensors_file
from octavo.frontend.gguf.weights import to_bfloat16

from .tokens import CHATML, make_tok_b, make_tok_s

__all__ = ["CHATML", "ScriptModel", "make_ctx_model", "make_script_model", "make_tok_b", "make_tok_s"]

Token = str | int
Tensors = dict[str, NDArray[np.float32]]

_CASTS: dict[str, tuple[str, Callable[[NDArray[np.float32]], NDArray[Any]]]] = {
    "float32": ("F32", lambda values: values),
    "float16": ("F16", lambda values: values.astype(np.float16)),
    "bfloat16": ("BF16", to_bfloat16),
}
_SCRIPT_HIDDEN = 512
# RMSNorm turns a one-hot vector of size n into one of height sqrt(n).
_NORM_GAIN = math.sqrt(_SCRIPT_HIDDEN)


@dataclass(frozen=True)
class ScriptModel:
    """A SCRIPT model on disk: where it is, its tokenizer and the ids it will say."""

    path: Path
    tokenizer: Tokenizer
    script_ids: list[int]
    eos_token_id: int
    vocab_size: int
    successors: dict[int, dict[int, float]] = field(repr=False)

    def token_id(self, token: Token) -> int:
        return _token_id(self.tokenizer, token)


def make_script_model(
    directory: Path,
    script: str | Sequence[Token],
    *,
    tokenizer: str = "B",
    w: float = 1.0,
    loop: bool = False,
    eos_logit: float | None = None,
    successors: Mapping[Token, Mapping[Token, float]] | None = None,
    dtype: str = "float32",
    max_model_len: int = 2048,
    chat_template: str | None = CHATML,
    add_bos: bool = False,
) -> ScriptModel:
    """Write a model that says `script`, then eos, whatever it is asked.

    Each token of the script is followed by the next one (the last by eos, or with `loop` by the first
    again), every other token by the first: the successor's logit is about 22.63 * w, all others are 0.
    `eos_logit` adds a logit for eos after every token. `successors` replaces the rule for single tokens:
    {"a": {"b": 2.0, "d": 1.9}} gives logits after "a". Tokens are ids or texts that are one token. Raises
    ValueError when a token occurs twice in the script.
    """
    directory.mkdir(parents=True, exist_ok=True)
    make_tokenizer = {"B": make_tok_b, "S": make_tok_s}[tokenizer]
    tok = make_tokenizer(directory, chat_template=chat_template, add_bos=add_bos)
    if isinstance(script, str):
        script = list(tok.encode(script, add_special_tokens=False).ids)
    ids = [_token_id(tok, token) for token in script]
    if len(set(ids)) != len(ids):
        raise ValueError(f"the tokens of a script must be distinct: {[tok.id_to_token(i) for i in ids]}")
    vocab_size, eos = tok.get_vocab_size(), _eos_id(directory, tok)
    follows = dict.fromkeys(range(vocab_size), ids[0])
    follows.update(zip(ids, [*ids[1:], ids[0] if loop else eos], strict=True))
    table = {token: {successor: w * _NORM_GAIN} for token, successor in follows.items()}
    if eos_logit is not None:
        for row in table.values():
            row.setdefault(eos, eos_logit)
    for token, row in (successors or {}).items():
        table[_token_id(tok, token)] = {_token_id(tok, name): logit for name, logit in row.items()}
    config = _llama_config(
        vocab_size,
        hidden=_SCRIPT_HIDDEN,
        layers=1,
        heads=4,
        kv_heads=2,
        intermediate=32,
        max_len=max_model_len,
    )
    _write_model(
        directory, config, _script_weights(config, table), eos=eos, bos=_bos_id(directory, tok), dtype=dtype
    )
    return ScriptModel(directory, tok, ids, eos, vocab_size, table)


def make_ctx_model(
    directory: Path,
    *,
    seed: int = 0,
    tied: bool = False,
    write_lm_head: bool | None = None,
    num_shards: int = 1,
    initializer_range: float = 0.3,
    max_model_len: int = 2048,
    dtype: str = "float32",
    config: Mapping[str, Any] | None = None,
    chat_template: str | None = CHATML,
    add_bos: bool = False,
) -> Path:
    """Write a random Llama whose every output depends on the whole context; returns `directory`.

    Hidden size 64, 2 layers, 4 query and 2 KV heads, TOK-B, no eos. `config` replaces or adds entries of
    config.json (None removes one); sizes given there shape the weights. `write_lm_head` False leaves the
    head's tensor out, by default it is written unless `tied`. With `num_shards` above 1 the weights are
    spread over files with an index.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tok = make_tok_b(directory, chat_template=chat_template, add_bos=add_bos, names_eos=False)
    full = _llama_config(
        tok.get_vocab_size(),
        hidden=64,
        layers=2,
        heads=4,
        kv_heads=2,
        intermediate=128,
        max_len=max_model_len,
    )
    full["tie_word_embeddings"] = tied
    for key, value in (config or {}).items():
        full[key] = value
        if value is None:
            del full[key]
    weights = _random_weights(full, np.random.default_rng(seed), initializer_range)
    if not (not tied if write_lm_head is None else write_lm_head):
        del weights["lm_head.weight"]
    _write_model(directory, full, weights, eos=None, bos=None, dtype=dtype, num_shards=num_shards)
    return directory


def _script_weights(config: dict[str, Any], table: dict[int, dict[int, float]]) -> Tensors:
    weights = _random_weights(config, np.random.default_rng(0), 0.02)
    vocab_size, hidden = config["vocab_size"], config["hidden_size"]
    weights["model.embed_tokens.weight"] = np.eye(vocab_size, hidden, dtype=np.float32)
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        weights[f"model.layers.0.{name}.weight"][:] = 0.0
    head = np.zeros((vocab_size, hidden), dtype=np.float32)
    for token, row in table.items():
        for successor, logit in row.items():
            head[successor, token] = logit / _NORM_GAIN
    weights["lm_head.weight"] = head
    return weights


def _random_weights(config: dict[str, Any], rng: np.random.Generator, spread: float) -> Tensors:
    hidden, inter, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head_dim = config.get("head_dim", hidden // config["num_attention_heads"])
    q_size = config["num_attention_heads"] * head_dim
    kv_size = config["num_key_value_heads"] * head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.input_layernorm.weight": (hidden,),
            f"{prefix}.self_attn.q_proj.weight": (q_size, hidden),
            f"{prefix}.self_attn.k_proj.weight": (kv_size, hidden),
            f"{prefix}.self_attn.v_proj.weight": (kv_size, hidden),
            f"{prefix}.self_attn.o_proj.weight": (hidden, q_size),
            f"{prefix}.post_attention_layernorm.weight": (hidden,),
            f"{prefix}.mlp.gate_proj.weight": (inter, hidden),
            f"{prefix}.mlp.up_proj.weight": (inter, hidden),
            f"{prefix}.mlp.down_proj.weight": (hidden, inter),
        }
    shapes |= {"model.norm.weight": (hidden,), "lm_head.weight": (vocab, hidden)}

    def draw(shape: tuple[int, ...]) -> NDArray[np.float32]:
        if len(shape) == 1:
            return np.ones(shape, dtype=np.float32)
        return (rng.standard_normal(shape) * spread).astype(np.float32)

    return {name: draw(shape) for name, shape in shapes.items()}


def _llama_config(
    vocab_size: int, *, hidden: int, layers: int, heads: int, kv_heads: int, intermediate: int, max_len: int
) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": max_len,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
    }


def _write_model(
    directory: Path,
    config: dict[str, Any],
    weights: Tensors,
    *,
    eos: int | None,
    bos: int | None,
    dtype: str,
    num_shards: int = 1,
) -> None:
    special = {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": eos}
    _write_json(directory / "config.json", {**config, **special, "torch_dtype": dtype})
    _write_json(directory / "generation_config.json", {k: v for k, v in special.items() if v is not None})
    if num_shards == 1:
        _save(directory / "model.safetensors", weights, dtype)
        return
    names, weight_map = sorted(weights), {}
    for shard in range(num_shards):
        file_name = f"model-{shard + 1:05}-of-{num_shards:05}.safetensors"
        part = {name: weights[name] for name in names[shard::num_shards]}
        weight_map.update(dict.fromkeys(part, file_name))
        _save(directory / file_name, part, dtype)
    total = sum(value.nbytes for value in weights.values())
    _write_json(
        directory / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": weight_map},
    )


def _save(path: Path, weights: Tensors, dtype: str) -> None:
    short, cast = _CASTS[dtype]
    infos = [TensorInfo(name, short, value.shape) for name, value in weights.items()]
    write_safetensors_file(path, infos, (cast(value).tobytes() for value in weights.values()))


def _token_id(tokenizer: Tokenizer, token: Token) -> int:
    if isinstance(token, int):
        return token
    known = tokenizer.token_to_id(token)
    if known is not None:
        return int(known)
    ids = tokenizer.encode(token, add_special_tokens=False).ids
    if len(ids) != 1:
        raise ValueError(f"{token!r} is not one token: {ids}")
    return int(ids[0])


def _eos_id(directory: Path, tokenizer: Tokenizer) -> int:
    return int(tokenizer.token_to_id(_tokenizer_config(directory)["eos_token"]))


def _bos_id(directory: Path, tokenizer: Tokenizer) -> int | None:
    bos = _tokenizer_config(directory).get("bos_token")
    return None if bos is None else int(tokenizer.token_to_id(bos))


def _tokenizer_config(directory: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
    return content


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
