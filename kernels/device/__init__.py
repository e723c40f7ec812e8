"""The Triton form of every operation, for CUDA devices.

Names and arguments are those of `octavo.kernels.reference`; forms that need a plan or a workspace say so.
Wrappers check what the kernels assume and allocate nothing while a graph is captured. Grids and loop bounds
depend on shapes that the caller fixes at capture; lengths are read from device memory, so one capture serves
any lengths. With TRITON_INTERPRET=1 set before triton is imported, all of it runs on a CPU, slowly.
"""

from .attention.paged import paged_attention
from .attention.plan import AttentionPlan, make_attention_plan, plan_attention
from .layers.activation import gelu_tanh_mul, silu_mul
from .layers.fp8 import fp8_product, quantize_tokens, scale_tokens
from .layers.fp8_fused import quantize_rms_norm, quantize_silu_mul
from .layers.gemv import gemv
from .layers.kv_cache import write_kv
from .layers.norm import add_rms_norm, rms_norm
from .layers.rope import apply_rope, rope_and_write_kv
from .sampling.draw import DrawWorkspace, draw_tokens, make_draw_workspace
from .sampling.logprobs import compute_logprobs, logprobs_workspace_size
from .sampling.penalties import apply_penalties
from .sampling.pipeline import SamplingWorkspace, make_sampling_workspace, sample
from .sampling.threshold import find_threshold, make_candidates
from .sampling.token_lists import add_logit_bias, allow_only, ban_tokens, ban_words
from .step.commit import commit_tokens
from .step.diff import apply_diff
from .step.inputs import build_step_inputs

__all__ = [
    "AttentionPlan",
    "DrawWorkspace",
    "SamplingWorkspace",
    "add_logit_bias",
    "add_rms_norm",
    "allow_only",
    "apply_diff",
    "apply_penalties",
    "apply_rope",
    "ban_tokens",
    "ban_words",
    "build_step_inputs",
    "commit_tokens",
    "compute_logprobs",
    "draw_tokens",
    "find_threshold",
    "fp8_product",
    "gelu_tanh_mul",
    "gemv",
    "logprobs_workspace_size",
    "make_attention_plan",
    "make_candidates",
    "make_draw_workspace",
    "make_sampling_workspace",
    "paged_attention",
    "plan_attention",
    "quantize_rms_norm",
    "quantize_silu_mul",
    "quantize_tokens",
    "rms_norm",
    "rope_and_write_kv",
    "sample",
    "scale_tokens",
    "silu_mul",
    "write_kv",
]
