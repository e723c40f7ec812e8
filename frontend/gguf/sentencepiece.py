"""A SentencePiece vocabulary with scores -> a byte-pair tokenizer that cuts text in the same way.

SentencePiece joins, of all neighbours whose union is a piece, the pair whose union has the highest score, and
writes characters without a piece as bytes. A byte-pair model does the same when every way to cut a piece in
two is a merge, ranked by the score of the piece.

Source: Kudo and Richardson 2018, "SentencePiece".
"""

from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers

from .file import GgufFile

_SPACE = "▁"
_NORMAL = 1
_USER_DEFINED = 4


def build_sentencepiece(file: GgufFile) -> Tokenizer:
    """The tokenizer of a file whose `tokenizer.ggml.model` is "llama", without its added tokens."""
    tokens = file.require("tokenizer.ggml.tokens", list)
    scores = file.require("tokenizer.ggml.scores", list)
    kinds = file.metadata.get("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens)
    unknown = file.metadata.get("tokenizer.ggml.unknown_token_id")
    joined = {
        token: score
        for token, score, kind in zip(tokens, scores, kinds, strict=True)
        if kind in (_NORMAL, _USER_DEFINED) and len(token) > 1
    }
    model = models.BPE(
        vocab={token: index for index, token in enumerate(tokens)},
        merges=merges_of(joined, set(tokens)),
        unk_token=None if unknown is None else tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    spaces: list[Any] = [normalizers.Replace(" ", _SPACE)]
    restored: list[Any] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if file.metadata.get("tokenizer.ggml.add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend(_SPACE))
        restored.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(spaces)
    tokenizer.decoder = decoders.Sequence(restored)
    return tokenizer


def merges_of(scores: dict[str, float], pieces: set[str]) -> list[tuple[str, str]]:
    """All ways to make each piece of `scores` out of two `pieces`, the highest score first."""
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)
    return [
        (piece[:cut], piece[cut:])
        for piece in ranked
        for cut in range(1, len(piece))
        if piece[:cut] in pieces and piece[cut:] in pieces
    ]
