"""GGUF metadata -> tokenizer.json and tokenizer_config.json."""

from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from .file import GgufFile, UnsupportedGgufError
from .sentencepiece import build_sentencepiece

_CONTROL = 3
_USER_DEFINED = 4

_SPECIAL_TOKEN_KEYS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}

_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def build_tokenizer(file: GgufFile) -> Tokenizer:
    """The tokenizer that the file describes.

    Raises `UnsupportedGgufError` for a kind of tokenizer, or a way to split text, that is not known here.
    """
    kind = file.require("tokenizer.ggml.model", str)
    if kind not in _BUILDERS:
        raise UnsupportedGgufError(f"{file.path.name}: the tokenizer kind {kind!r} is not supported")
    tokenizer = _BUILDERS[kind](file)
    tokens = file.require("tokenizer.ggml.tokens", list)
    _mark_added_tokens(tokenizer, tokens, file.metadata.get("tokenizer.ggml.token_type", []))
    return tokenizer


def _build_byte_level(file: GgufFile) -> Tokenizer:
    tokens = file.require("tokenizer.ggml.tokens", list)
    merges = [tuple(merge.split(" ")) for merge in file.require("tokenizer.ggml.merges", list)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = _pre_tokenizer(file)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def tokenizer_config(file: GgufFile) -> dict[str, Any]:
    """The content of tokenizer_config.json: special tokens and whether bos and eos are added."""
    tokens = file.require("tokenizer.ggml.tokens", list)
    metadata = file.metadata
    named = {name: tokens[metadata[key]] for name, key in _SPECIAL_TOKEN_KEYS.items() if key in metadata}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": metadata.get("tokenizer.ggml.add_bos_token", False),
        "add_eos_token": metadata.get("tokenizer.ggml.add_eos_token", False),
        "clean_up_tokenization_spaces": False,
        "model_max_length": file.hparam("context_length", int),
        **named,
    }


def _pre_tokenizer(file: GgufFile) -> Any:
    """How text is split into words before merging: `tokenizer.ggml.pre` names the rule."""
    name = file.metadata.get("tokenizer.ggml.pre", "default")
    match name:
        case "smollm":
            digits = pre_tokenizers.Digits(individual_digits=True)
            return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
        case "default" | "gpt-2":
            return pre_tokenizers.ByteLevel(add_prefix_space=False)
        case "llama-bpe" | "llama3":
            split = pre_tokenizers.Split(Regex(_LLAMA3_SPLIT), behavior="isolated")
            plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            return pre_tokenizers.Sequence([split, plain])
    raise UnsupportedGgufError(f"{file.path.name}: the pre-tokenizer {name!r} is not supported")


_BUILDERS = {"gpt2": _build_byte_level, "llama": build_sentencepiece}


def _mark_added_tokens(tokenizer: Tokenizer, tokens: list[str], kinds: list[int]) -> None:
    """Tokens marked as control are special; user-defined ones are matched whole but stay visible."""
    for token, kind in zip(tokens, kinds, strict=False):
        if kind == _CONTROL:
            tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)])
        elif kind == _USER_DEFINED:
            tokenizer.add_tokens([AddedToken(token, normalized=False, special=False)])
