"""Forms of the operations that are fast on a CPU: few operator calls, weights packed ahead, no copies.

Each equals `octavo.kernels.reference` up to rounding; what is not here runs in the reference form.
"""

from .activation import gelu_tanh_mul, silu_mul
from .attention import AttentionPlan, attend, plan_attention
from .linear import PackedGated, PackedLinear, embed, gated_linear, linear, pack_gated, pack_linear
from .moe import Routes, mix_experts, route
from .native import native_ops
from .norm import add_rms_norm, rms_norm
from .rope import RopeRows, apply_rope, gather_rope
from .sampling import apply_bitmask, draw_greedy, draw_inverse_cdf, sample

__all__ = [
    "AttentionPlan",
    "PackedGated",
    "PackedLinear",
    "RopeRows",
    "Routes",
    "add_rms_norm",
    "apply_bitmask",
    "apply_rope",
    "attend",
    "draw_greedy",
    "draw_inverse_cdf",
    "embed",
    "gated_linear",
    "gather_rope",
    "gelu_tanh_mul",
    "linear",
    "mix_experts",
    "native_ops",
    "pack_gated",
    "pack_linear",
    "plan_attention",
    "rms_norm",
    "route",
    "sample",
    "silu_mul",
]
