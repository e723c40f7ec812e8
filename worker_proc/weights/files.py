"""Which files of a model folder hold weights."""

import json
from pathlib import Path

from ...protocol.errors import ModelError

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder, in order of their names.

    Raises ModelError when there are none, when there are only pickled weights, or when the index names a file
    that is absent.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a folder")
    if (folder / _INDEX).exists():
        return _indexed(folder)
    if (folder / _SINGLE).exists():
        return [folder / _SINGLE]
    found = sorted(folder.glob("*.safetensors"))
    if found:
        return found
    pickled = sorted(path.name for pattern in _PICKLED for path in folder.glob(pattern))
    if pickled:
        raise ModelError(
            f"{folder} holds pickled weights ({pickled[0]}), which can run code; convert them to safetensors"
        )
    raise ModelError(f"{folder} holds no *.safetensors file")


def _indexed(folder: Path) -> list[Path]:
    path = folder / _INDEX
    try:
        weight_map = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        names = sorted(set(weight_map.values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelError(f"{path} is not an index of weights: {error!r}") from error
    for name in names:
        if Path(name).name != name:
            raise ModelError(f"{path} names a file outside the model folder: {name}")
        if not (folder / name).exists():
            raise ModelError(f"{path} names {name}, which is not there")
    if not names:
        raise ModelError(f"{path} names no file")
    return [folder / name for name in names]
