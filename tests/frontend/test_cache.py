"""Folders in the cache are absent or complete."""

import threading
from pathlib import Path

import pytest

from octavo.frontend.cache import build_folder_once, default_cache_dir


def test_the_cache_follows_the_xdg_specification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_cache_dir() == Path("/somewhere/octavo")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_cache_dir() == Path.home() / ".cache" / "octavo"


def test_a_folder_is_built_once_by_many(tmp_path: Path) -> None:
    built: list[Path] = []

    def fill(staging: Path) -> None:
        (staging / "file").write_text("whole")
        built.append(staging)

    threads = [
        threading.Thread(target=build_folder_once, args=(tmp_path / "deep" / "folder", fill))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
    assert (tmp_path / "deep" / "folder" / "file").read_text() == "whole"


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def fill(staging: Path) -> None:
        (staging / "half").write_text("half")
        raise RuntimeError("no space")

    with pytest.raises(RuntimeError, match="no space"):
        build_folder_once(tmp_path / "folder", fill)
    assert [path.name for path in tmp_path.iterdir()] == [".folder.lock"]


def test_what_a_killed_builder_left_is_removed(tmp_path: Path) -> None:
    leftover = tmp_path / ".folder.abc"
    leftover.mkdir()
    (leftover / "half").write_text("half")
    build_folder_once(tmp_path / "folder", lambda staging: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".folder.lock", "folder"]
