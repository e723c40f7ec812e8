"""`octavo bench kernels`: each kernel's speed on the device at hand, beside what bounds it.

A line for each case: its time, its rate, and how much it reaches of the bound that its bytes or its matrix
products set. Exits with 1 when a case failed.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch

from .attention import attention_cases
from .ceilings import measure_ceilings
from .layers import layer_cases
from .linear import linear_cases, tile_cases
from .sampling import sampling_cases
from .timing import Case, measure

_GROUPS = {
    "layers": layer_cases,
    "linear": linear_cases,
    "attention": attention_cases,
    "sampling": sampling_cases,
    "tiles": tile_cases,
}
_DEFAULT = tuple(name for name in _GROUPS if name != "tiles")


def main() -> int:
    """Measure the groups asked for and write OUT/GROUP.json for each."""
    options = _options()
    if options.part:
        return _compile_part(options)
    if options.jobs:
        _compile(options)
    options.out.mkdir(parents=True, exist_ok=True)
    failed = False
    with torch.inference_mode():
        ceilings = measure_ceilings()
        _say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {ceilings}")
        for group in options.group:
            rows = []
            for case in _cases([group], options.only):
                row = measure(case, ceilings)
                torch.cuda.empty_cache()
                rows.append(row)
                failed |= "error" in row
                _say(_line(row))
            report = {"command": sys.argv, "ceilings": asdict(ceilings), "rows": rows}
            (options.out / f"{group}.json").write_text(json.dumps(report, indent=1))
    return int(failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="octavo bench kernels", description=__doc__)
    parser.add_argument("--group", nargs="+", choices=_GROUPS, default=list(_DEFAULT), metavar="NAME",
                        help=f"some of {', '.join(_GROUPS)}; tiles (to choose launch figures) is left out "
                        "by default")  # fmt: skip
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--jobs", type=int, default=0, help="processes that compile the kernels first")
    parser.add_argument("--out", type=Path, default=Path("bench-kernels"), help="folder for the figures")
    parser.add_argument("--part", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def _cases(groups: list[str], only: str) -> Iterator[Case]:
    return (case for group in groups for case in _GROUPS[group]() if only in case.name)


def _compile(options: argparse.Namespace) -> None:
    """Run each case once in processes of their own, which leave the kernels in Triton's cache."""
    command = [sys.executable, "-m", __package__, "--group", *options.group, "--only", options.only]
    jobs = [subprocess.Popen([*command, "--part", f"{part}/{options.jobs}"]) for part in range(options.jobs)]
    for job in jobs:
        job.wait()


def _compile_part(options: argparse.Namespace) -> int:
    part, jobs = map(int, options.part.split("/"))
    with torch.inference_mode():
        for index, case in enumerate(_cases(options.group, options.only)):
            if index % jobs == part:
                try:
                    case.make()()
                except Exception as error:  # it fails again where it is measured, and is reported there
                    _say(f"{case.name}: {type(error).__name__}")
                torch.cuda.empty_cache()
    return 0


def _line(row: dict[str, object]) -> str:
    if "error" in row:
        return f"{row['name']:58} {row['error']}"
    rates = [f"{row[name]:8} {unit}" for name, unit in _UNITS.items() if name in row]
    bound = f", bound {row['bound_us']:8} us = {row['percent']:5} %" if row["bound_us"] else ""
    return f"{row['name']:58} {row['us']:9} us {' '.join(rates)}{bound}"


_UNITS = {"tb_per_s": "TB/s", "tflop_per_s": "TFLOP/s"}


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
