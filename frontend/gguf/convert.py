"""A GGUF file -> a model folder."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...protocol.errors import ModelError
from ..cache import build_folder_once, default_cache_dir
from .config import generation_config, model_config
from .file import GgufFile
from .vocabulary import build_tokenizer, tokenizer_config
from .weights import write_weights

# Part of the path: a changed conversion takes another number and leaves older folders alone.
_CONVERSION = 1


def convert_gguf(path: Path, folder: Path, *, on_tensor: Callable[[int], object] = lambda size: None) -> None:
    """Write the model in the GGUF file `path` as a Hugging Face model folder into `folder`, which must exist.

    Weights become bfloat16. `on_tensor` is called with the size in bytes of each tensor written. Raises
    `UnsupportedGgufError` when the file holds an architecture or a tokenizer that is not known, before
    anything is written.
    """
    file = GgufFile(path)
    config = model_config(file)
    tokenizer = build_tokenizer(file)
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", generation_config(file))
    _write_json(folder / "tokenizer_config.json", tokenizer_config(file))
    tokenizer.save(str(folder / "tokenizer.json"))
    template = file.metadata.get("tokenizer.chat_template")
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    write_weights(file, config, folder / "model.safetensors", on_tensor)


def gguf_folder(path: Path, cache_dir: Path | None = None) -> Path:
    """The model folder made from the file `path`, in the cache (the user's unless `cache_dir` is given).

    It is made once, and again when the file's size or time has changed. Raises ModelError with one line.
    """
    home = default_cache_dir() if cache_dir is None else cache_dir
    state = path.stat()
    digest = hashlib.sha256(f"{path}\0{state.st_size}\0{state.st_mtime_ns}".encode()).hexdigest()[:16]
    folder = home / "gguf" / f"v{_CONVERSION}" / f"{path.stem}-{digest}"
    try:
        return build_folder_once(folder, lambda staging: convert_gguf(path, staging))
    except (ValueError, NotImplementedError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
