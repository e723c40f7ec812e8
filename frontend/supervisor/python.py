"""Running a module of this package in another Python process."""

import os
import sys
from pathlib import Path

_PACKAGE = __package__.partition(".")[0]
_SITE = ("site-packages", "dist-packages")


def python_module(module: str = "") -> list[str]:
    """The command that runs `module`, below the package; without a name the command line itself."""
    # -P: a file in the working directory must not pass for a module of ours or of the library.
    return [sys.executable, "-P", "-m", f"{_PACKAGE}.{module}" if module else _PACKAGE]


def python_environment(**more: str) -> dict[str, str]:
    """This process's environment and `more`, in which such a command finds the package."""
    environment = {**os.environ, **more}
    home = Path(__file__).resolve().parents[2].parent
    # An installed package is found without help, a checkout that is only on this process's path is not.
    if home.name not in _SITE and any(Path(entry).resolve() == home for entry in sys.path):
        paths = [str(home), *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment
