"""A model's step on a device: operators with preallocated results, attention over paged memory, its size."""

from .arena import Arena
from .attention import CudaAttention
from .fp8_layers import Fp8Layers, has_fp8_layers
from .lone import has_lone_layers, lone_body
from .ops import CudaOps

__all__ = ["Arena", "CudaAttention", "CudaOps", "Fp8Layers", "has_fp8_layers", "has_lone_layers", "lone_body"]
