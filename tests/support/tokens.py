"""The tokenizers of the small models: TOK-B (byte-level) and TOK-S (SentencePiece-like)."""

import json
import string
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

SENTENCE = "the cat sat on the mat and the dog ran over the hill"

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tok_b(
    directory: Path, *, chat_template: str | None = CHATML, add_bos: bool = False, names_eos: bool = True
) -> Tokenizer:
    """Write TOK-B, a byte-level BPE tokenizer of about 290 ids, into `directory`.

    Ids 0 to 2 are <|endoftext|> (bos), <|im_start|> and <|im_end|> (eos). An emoji is 4 tokens, " dog" is
    one, "dog" is several. With `add_bos` the tokenizer puts bos before every text; without `names_eos` no
    token ends a text.
    """
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=512, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([SENTENCE], trainer)
    named = {"bos_token": special[0], "pad_token": special[2]}
    if names_eos:
        named["eos_token"] = special[2]
    return _write(directory, tokenizer, named, chat_template=chat_template, add_bos=add_bos)


def make_tok_s(directory: Path, *, chat_template: str | None = CHATML, add_bos: bool = False) -> Tokenizer:
    """Write TOK-S, a BPE tokenizer with byte fallback and SentencePiece's spaces, into `directory`.

    Ids 0 to 2 are <unk>, <s> (bos) and </s> (eos), then the 256 byte pieces (not special: skipping special
    tokens must not drop them), then letters and words. "the cat sat" is the three pieces of its words.
    """
    pieces, merges = _train_pieces()
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    vocabulary = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=True)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in ("<unk>", "<s>", "</s>")])
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}
    return _write(directory, tokenizer, named, chat_template=chat_template, add_bos=add_bos)


def _train_pieces() -> tuple[list[str], list[tuple[str, str]]]:
    """The pieces (single characters first) and merges that BPE learns from the sentence."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=True)
    printable = sorted({"▁", *string.ascii_letters, *string.digits, *string.punctuation})
    trainer = trainers.BpeTrainer(vocab_size=512, initial_alphabet=printable, show_progress=False)
    tokenizer.train_from_iterator([SENTENCE], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return pieces, [(left, right) for left, right in model["merges"]]


def _write(
    directory: Path, tokenizer: Tokenizer, named: dict[str, str], *, chat_template: str | None, add_bos: bool
) -> Tokenizer:
    directory.mkdir(parents=True, exist_ok=True)
    if add_bos:
        bos = named["bos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": add_bos,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2048,
        **named,
    }
    tokenizer.save(str(directory / "tokenizer.json"))
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if chat_template is not None:
        (directory / "chat_template.jinja").write_text(chat_template, encoding="utf-8")
    return tokenizer
