"""The operators' library: compiled once on this machine, by its own C compiler, for its own processor."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("operators.c")
_FLAGS = (
    *("-std=gnu11", "-fPIC", "-fopenmp", "-O3", "-march=native", "-mprefer-vector-width=512"),
    *("-ffast-math", "-fno-finite-math-only"),  # sums in any order, but NaN and infinity stay what they are
)
_TIMEOUT = 60  # seconds


class BuildError(Exception):
    """The library cannot be made or loaded here; the message is one line."""


def load_library() -> ctypes.CDLL:
    """The library, from the user's cache if it is there. Raises BuildError."""
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if compiler is None:
        raise BuildError("no C compiler")
    try:
        path = _cache_dir() / f"operators-{_fingerprint(compiler)}.so"
        if not path.exists():
            _build(compiler, path)
        return ctypes.CDLL(str(path))
    except (OSError, subprocess.TimeoutExpired, RuntimeError) as error:
        raise BuildError(" ".join(str(error).split())) from error


def _cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "octavo" / "cpu"


def _fingerprint(compiler: str) -> str:
    """Of everything the result depends on: a home may be shared by machines of different processors."""
    found = hashlib.sha256(SOURCE.read_bytes())
    version = subprocess.run([compiler, "--version"], capture_output=True, timeout=_TIMEOUT, check=False)
    found.update(version.stdout)
    found.update(" ".join((compiler, *_FLAGS, platform.machine())).encode())
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        kinds = ("flags", "Features", "model name", "CPU part")
        lines = cpuinfo.read_text().splitlines()
        found.update("\n".join(sorted({line for line in lines if line.startswith(kinds)})).encode())
    return found.hexdigest()[:20]


def _build(compiler: str, path: Path) -> None:
    """Compile to `path`, which is absent or whole at any time.

    OpenMP is not linked: its symbols are those of the library that torch brought, so that torch's operators
    and these share one set of threads.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".operators-", dir=path.parent) as folder:
        compiled, linked = Path(folder) / "operators.o", Path(folder) / "operators.so"
        _run([compiler, *_FLAGS, "-c", str(SOURCE), "-o", str(compiled)])
        _run([compiler, "-shared", str(compiled), "-o", str(linked), "-lm"])
        linked.rename(path)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    if done.returncode != 0:
        raise BuildError(f"{Path(command[0]).name} failed: {_first_line(done.stderr)}")


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if "error" in line), "no message")
