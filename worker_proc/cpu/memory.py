"""How the C library's allocator treats the memory of a step."""

import ctypes
import logging

_log = logging.getLogger(__name__)

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 1 << 30


def keep_freed_memory() -> None:
    """Make the allocator keep what a step frees for the next one.

    By default glibc returns large blocks to the kernel, and each temporary of a step is then faulted in page
    by page: a third of the time of a prompt of 2,048 tokens. Does nothing with another C library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or not (
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 4) and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    ):
        _log.info("this C library's allocator cannot be told to keep freed memory")
