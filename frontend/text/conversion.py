"""Tokenizers that have no `tokenizer.json` are converted once, in a child process, into the cache."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from ...protocol.errors import ModelError
from ..cache import build_folder_once, default_cache_dir

_SOURCES = (
    "tokenizer.model",
    "tiktoken.model",
    "tekken.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
)
_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json")


def tokenizer_file(model_dir: Path) -> Path | None:
    """The folder's `tokenizer.json`, or where it will be once older files are converted; None without."""
    path = model_dir / "tokenizer.json"
    if path.is_file():
        return path
    if not any((model_dir / name).is_file() for name in _SOURCES):
        return None
    return _target(model_dir, default_cache_dir()) / path.name


def converted_folder(model_dir: Path, cache_dir: Path | None = None) -> Path:
    """A folder with a `tokenizer.json` made from `model_dir`'s older tokenizer files.

    It lies in the cache (`cache_dir`, by default the user's) under a digest of those files, so it is made
    once. Raises ModelError when there are none, or when transformers cannot convert them.
    """
    if not any((model_dir / name).is_file() for name in _SOURCES):
        raise ModelError(
            f"{model_dir} holds no tokenizer: neither tokenizer.json nor one of {', '.join(_SOURCES)}"
        )
    home = default_cache_dir() if cache_dir is None else cache_dir
    return build_folder_once(_target(model_dir, home), lambda staging: _convert_in_child(model_dir, staging))


def _target(model_dir: Path, cache_dir: Path) -> Path:
    return cache_dir / "tokenizers" / _digest(model_dir)


def _digest(model_dir: Path) -> str:
    digest = hashlib.sha256()
    for name in (*_SOURCES, *_SETTINGS):
        path = model_dir / name
        if path.is_file():
            digest.update(f"{name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def _convert_in_child(model_dir: Path, target: Path) -> None:
    command = [sys.executable, "-m", "octavo.frontend.text.convert", str(model_dir), str(target)]
    # The child must find the same packages, also those that this process found by a changed sys.path.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0 or not (target / "tokenizer.json").is_file():
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ModelError(
            f"the tokenizer in {model_dir} has no tokenizer.json and could not be converted: {reason}"
        )
