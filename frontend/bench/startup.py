"""`octavo bench startup`: from the command to the first healthy answer and the first token, by phases.

The first start has an empty cache of compiled kernels, the others find what it left. What stands behind `--`
are flags of the server.
"""

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ..cli.local_server import LocalServer
from .device import measure_ceilings
from .models import SHAPES, make_model_folder
from .serve import copy_tokenizer
from .stream import complete

_LINK = 55e9  # bytes a second from pinned memory to an H200: weights cannot arrive faster


@dataclass(frozen=True)
class Row:
    """One start."""

    kernels: str  # "cold" or "warm"
    healthy_seconds: float
    first_token_seconds: float
    phases: dict[str, float]  # of the worker, in seconds; they sum to its start
    bound_seconds: float  # to move the weights, 0 for weights made on the device

    def __str__(self) -> str:
        phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.phases.items())
        bound = f", bound {self.bound_seconds:.2f} s" if self.bound_seconds else ""
        return (
            f"kernels {self.kernels}: healthy after {self.healthy_seconds:.2f} s, first token after "
            f"{self.first_token_seconds:.2f} s{bound}; worker {sum(self.phases.values()):.2f} s ({phases})"
        )


def main() -> int:
    """Start and end servers, print a line for each, and write OUT/startup.json."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    ceilings = measure_ceilings()
    sys.stdout.write(f"{ceilings or 'no CUDA device: no ceilings'}\n")
    rows = []
    with tempfile.TemporaryDirectory(prefix="octavo-bench-") as scratch:
        folder, flags = Path(options.model), list(options.flags)
        if options.model in SHAPES:
            folder = make_model_folder(Path(scratch), options.model)
            copy_tokenizer(options.tokenizer, folder)
            flags = ["--load-format", "dummy", "--max-model-len", "8192", *flags]
        os.environ["TRITON_CACHE_DIR"] = str(Path(scratch) / "kernels")
        for kernels in ["cold"] + ["warm"] * options.warm:
            rows.append(_start(folder, flags, kernels))
            sys.stdout.write(f"{rows[-1]}\n")
            sys.stdout.flush()
    report = {
        "command": sys.argv,
        "ceilings": ceilings and asdict(ceilings),
        "rows": [asdict(row) for row in rows],
    }
    (options.out / "startup.json").write_text(json.dumps(report, indent=1))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="octavo bench startup", description=__doc__)
    parser.add_argument("--model", default="llama-8b-49k", help=f"one of {', '.join(SHAPES)}, or a folder")
    parser.add_argument("--tokenizer", type=Path, help="folder whose tokenizer a named shape gets")
    parser.add_argument("--warm", type=int, default=2, help="starts that find the kernels compiled")
    parser.add_argument("--out", type=Path, default=Path("bench-startup"), help="folder for the figures")
    parser.add_argument("flags", nargs="*", help="behind --: flags of the server")
    return parser.parse_args()


def _start(folder: Path, flags: list[str], kernels: str) -> Row:
    began = time.perf_counter()
    server = LocalServer(str(folder), flags, keep=False)
    try:
        healthy = time.perf_counter() - began
        answer = asyncio.run(complete(server.info.url, {"prompt": [5, 6, 7], "max_tokens": 1}))
        if answer.error:
            raise RuntimeError(f"the first request failed: {answer.error}")
        return Row(
            kernels=kernels,
            healthy_seconds=healthy,
            first_token_seconds=time.perf_counter() - began,
            phases=_phases(server.log()),
            bound_seconds=sum(file.stat().st_size for file in folder.glob("*.safetensors")) / _LINK,
        )
    finally:
        server.close()


def _phases(log: str) -> dict[str, float]:
    found = re.search(r"worker 0\.0 ready after [\d.]+ s \((.*)\)", log)
    pairs = re.findall(r"(\w+) ([\d.]+)", found[1]) if found else []
    return {name: float(seconds) for name, seconds in pairs}


if __name__ == "__main__":
    sys.exit(main())
