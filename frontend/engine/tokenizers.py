"""The tokenizer of a model folder, if the folder has one."""

from pathlib import Path

from ..text import Tokenizer

_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")


def load_tokenizer(folder: Path) -> Tokenizer | None:
    """None for a folder without any tokenizer file: prompts are then token ids, and outputs have no text."""
    if not any((folder / name).exists() for name in _FILES):
        return None
    return Tokenizer.load(folder)
