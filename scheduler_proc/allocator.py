"""Keeps memory that was used once: a message of megabytes must not cost the page faults of fresh memory."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of glibc's mallopt
_LARGEST_KEPT = 32 << 20  # bytes: the most that glibc takes for the second
_KEPT = 256 << 20
_TOUCHED = 48 << 20  # a prompt of a million tokens, received, decoded and sent on


def keep_memory() -> None:
    """Let the C library keep what is freed, and touch some of it now; elsewhere than on glibc do nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT) and mallopt(_TRIM_THRESHOLD, _KEPT):
        touched = [bytearray(_LARGEST_KEPT // 2) for _ in range(_TOUCHED // (_LARGEST_KEPT // 2))]
        del touched
