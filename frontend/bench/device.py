"""What the device at hand can do, measured in a process of its own: nothing here loads torch."""

import json
import subprocess
from dataclasses import dataclass

from ..supervisor.python import python_environment, python_module


@dataclass(frozen=True)
class Ceilings:
    """Rates of a CUDA device and of its host."""

    copy: float  # bytes a second, read and written
    flops: float  # of a large bf16 product of random numbers, a second
    launch_us: float  # of the host, for one small kernel
    graph_launch_us: float  # of the host, for a graph of 100 of them

    def __str__(self) -> str:
        return (
            f"ceilings: copy {self.copy / 1e12:.2f} TB/s, bf16 product {self.flops / 1e12:.0f} TFLOP/s, "
            f"of the host {self.launch_us:.1f} us a launch and {self.graph_launch_us:.1f} a graph"
        )


def measure_ceilings() -> Ceilings | None:
    """Those of the first CUDA device, which must be idle; None where there is none."""
    command = python_module("kernels.bench.ceilings")
    done = subprocess.run(command, env=python_environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the device could not be measured: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    return None if found is None else Ceilings(**found)


def memory_used() -> int:
    """Bytes in use on the first CUDA device by all programs, 0 where there is none."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return 0
    return int(done.stdout) << 20 if done.returncode == 0 else 0
