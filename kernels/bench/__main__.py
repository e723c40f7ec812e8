"""Runs groups of cases; see the package's docstring. Exits with 1 when a case failed."""

import json
import sys
from pathlib import Path

import torch

from .attention import attention_cases
from .layers import layer_cases
from .linear import linear_cases
from .sampling import sampling_cases
from .timing import measure, measure_ceilings

_GROUPS = {
    "layers": layer_cases,
    "linear": linear_cases,
    "attention": attention_cases,
    "sampling": sampling_cases,
}


def main(arguments: list[str]) -> int:
    """Measures the groups named behind the folder, or all of them."""
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    failed = False
    with torch.inference_mode():
        ceilings = measure_ceilings()
        write = sys.stdout.write
        write(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {ceilings}\n")
        for group in arguments[1:] or _GROUPS:
            rows = []
            for case in _GROUPS[group]():
                row = measure(case, ceilings)
                torch.cuda.empty_cache()
                rows.append(row)
                failed |= "error" in row
                shown = {name: value for name, value in row.items() if name not in ("name", "trace")}
                write(f"{row['name']:58} {shown}\n")
                sys.stdout.flush()
            report = {"ceilings": ceilings._asdict(), "rows": rows}
            (folder / f"{group}.json").write_text(json.dumps(report, indent=1))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
