"""A model's step on a device: operators with preallocated results, attention over paged memory, its size."""

from .arena import Arena
from .attention import CudaAttention
from .lone import lone_body
from .ops import CudaOps

__all__ = ["Arena", "CudaAttention", "CudaOps", "lone_body"]
