"""The memory of a CPU worker: kept when a step frees it, in huge pages, and not there until it is written.

glibc, as it comes, gives large blocks back to the kernel, and each temporary of a step is then faulted in
page by page: a third of the time of a prompt of 2,048 tokens. And with pages of 4 KiB, reading all weights
takes a tenth longer, for address translation.
"""

import ctypes
import logging
import math
import mmap

import torch
from torch import Tensor

_log = logging.getLogger(__name__)

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEPT_BYTES = 1 << 30
_HUGE_PAGE = 2 << 20


def prepare_heap(num_bytes: int) -> None:
    """Make the allocator keep freed memory, and put the next `num_bytes` of the heap in huge pages.

    Only address space is taken. Does nothing with a C library other than glibc, and leaves the pages small
    where the kernel has no huge ones. Call before anything large is allocated.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not hasattr(libc, "gnu_get_libc_version"):
        _log.info("this C library's allocator cannot be told to keep freed memory")
        return
    libc.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 4)
    libc.mallopt(_M_TRIM_THRESHOLD, min(_KEPT_BYTES + num_bytes, 2**31 - 1))
    libc.sbrk.restype = libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.mallopt(_M_TOP_PAD, min(num_bytes, 2**31 - 1))
    begin = -(-libc.sbrk(0) // _HUGE_PAGE) * _HUGE_PAGE
    libc.free(libc.malloc(_KEPT_BYTES // 8))  # more than is free: grows the heap, and by the padding
    libc.mallopt(_M_TOP_PAD, _HUGE_PAGE)
    libc.madvise(begin, libc.sbrk(0) - begin, mmap.MADV_HUGEPAGE)


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros that take memory when they are first touched; those of torch are written when they are made."""
    area = mmap.mmap(-1, math.prod(shape) * dtype.itemsize)
    area.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(area, dtype=dtype).view(shape)
