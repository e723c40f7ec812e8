"""The Triton form of every operation, for CUDA devices.

Names and arguments are those of `octavo.kernels.reference`; forms that need a plan or a workspace say so.
Wrappers check what the kernels assume and allocate nothing while a graph is captured. Grids and loop bounds
depend on shapes that the caller fixes at capture; lengths are read from device memory, so one capture serves
any lengths. With TRITON_INTERPRET=1 set before triton is imported, all of it runs on a CPU, slowly.
"""

from .attention.paged import paged_attention
from .attention.plan import AttentionPlan, make_attention_plan, plan_attention
from .layers.activation import gelu_tanh_mul, silu_mul
from .layers.kv_cache import write_kv
from .layers.norm import add_rms_norm, rms_norm
from .layers.rope import apply_rope, rope_and_write_kv

__all__ = [
    "AttentionPlan",
    "add_rms_norm",
    "apply_rope",
    "gelu_tanh_mul",
    "make_attention_plan",
    "paged_attention",
    "plan_attention",
    "rms_norm",
    "rope_and_write_kv",
    "silu_mul",
    "write_kv",
]
