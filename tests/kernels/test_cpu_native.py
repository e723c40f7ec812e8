"""The library of native operators: built once, one set of threads with torch, and never needed."""

import logging
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from octavo.kernels import cpu
from octavo.kernels.cpu.native.build import BuildError, load_library

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="this machine has no C compiler")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    return tmp_path / "octavo" / "cpu"


@needs_compiler
def test_the_library_is_built_once(own_cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: load_library(), range(4)))
    (built,) = own_cache.iterdir()
    before = built.stat().st_mtime_ns
    load_library()
    assert [built] == list(own_cache.iterdir())
    assert built.stat().st_mtime_ns == before


@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_its_threads_are_those_of_torch() -> None:
    script = """
import os, torch
from octavo.kernels.cpu import native_ops
x, weight = torch.ones(1, 64, dtype=torch.bfloat16), torch.ones(4096, 64, dtype=torch.bfloat16)
torch.set_num_threads(2)
torch.ones(10 ** 6).add(1)
before = len(os.listdir("/proc/self/task"))
assert float(native_ops().matvec(x, weight, None).sum()) == 64 * 4096
assert len(os.listdir("/proc/self/task")) == before
print(len({line.split()[-1] for line in open("/proc/self/maps") if "gomp" in line}))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


def test_without_a_compiler_torch_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildError, match="no C compiler"):
        load_library()
    monkeypatch.setenv("OCTAVO_NATIVE", "1")
    cpu.native_ops.cache_clear()
    try:
        with caplog.at_level(logging.INFO):
            assert cpu.native_ops() is None
        assert len(caplog.records) == 1
        x, weight = torch.ones(1, 8, dtype=torch.bfloat16), torch.ones(4, 8, dtype=torch.bfloat16)
        assert cpu.linear(x, cpu.pack_linear(weight, keep_plain=True), None).tolist() == [[8.0] * 4]
    finally:
        cpu.native_ops.cache_clear()


def test_a_compiler_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'operators.c:1: error: no such option' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    with pytest.raises(BuildError, match=r"^cc failed: operators.c:1: error: no such option$"):
        load_library()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    if shutil.which("cc") is None:
        pytest.skip("this machine has no C compiler")
    with pytest.raises(BuildError, match="Not a directory"):
        load_library()
