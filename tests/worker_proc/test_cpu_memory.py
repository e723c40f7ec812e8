"""The heap in huge pages and the cache that is not there until it is written."""

import subprocess
import sys

import torch

from octavo.worker_proc.cpu.memory import lazy_zeros

_GROWS = """
import ctypes, resource
from octavo.worker_proc.cpu.memory import prepare_heap
prepare_heap(256 << 20)
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
faults = []
for _ in range(3):
    area = libc.malloc(16 << 20)
    ctypes.memset(area, 1, 16 << 20)
    libc.free(area)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[2] - faults[1])
"""


def test_freed_memory_is_kept() -> None:
    """The second time a block of 16 MiB is written, none of its 4,096 pages is faulted in again."""
    output = subprocess.run([sys.executable, "-c", _GROWS], capture_output=True, text=True, check=True).stdout
    assert int(output) < 100


def test_lazy_zeros_take_no_memory_until_written() -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    before = resident()
    zeros = lazy_zeros((64 << 20, 2), torch.bfloat16)
    assert resident() - before < 16 << 20
    assert zeros.shape == (64 << 20, 2)
    assert zeros[12345].tolist() == [0.0, 0.0]
    zeros[:, 0] = 1.0
    assert resident() - before > 200 << 20
