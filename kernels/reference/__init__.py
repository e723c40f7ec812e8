"""The plain torch definition of every operation, on any device: what is right, and what runs on a CPU.

Functions are float32-accurate, keep no state and import no triton. `octavo.kernels.device` has the Triton
form of each under the same name.
"""

from .attention import AttentionPlan, paged_attention, plan_attention
from .attention_split import AttentionSplit, split_attention
from .layers.activation import gelu_tanh_mul, silu_mul
from .layers.fp8 import (
    fp8_product,
    quantize_rms_norm,
    quantize_silu_mul,
    quantize_tokens,
    quantize_weight,
    scale_tokens,
)
from .layers.gemv import gemv
from .layers.kv_cache import write_kv
from .layers.moe import Routes, mix_experts, route
from .layers.norm import add_rms_norm, rms_norm
from .layers.rope import apply_rope, rope_and_write_kv
from .sampling.bitmask import apply_bitmask
from .sampling.draw import NO_TOKEN, draw_greedy, draw_gumbel, draw_inverse_cdf, draw_tokens
from .sampling.filters import apply_min_p, apply_top_k, apply_top_p, find_threshold
from .sampling.logprobs import Logprobs, compute_logprobs
from .sampling.penalties import Penalties, apply_penalties, count_tokens, fill_counts
from .sampling.philox import STREAM_GUMBEL, draw_uniform, draw_uniform_row, philox4x32
from .sampling.pipeline import GREEDY_BELOW, SamplingColumns, TokenRules, apply_rules, filter_logits, sample
from .sampling.token_lists import (
    TokenLists,
    add_logit_bias,
    allow_only,
    ban_tokens,
    ban_words,
    make_token_lists,
)
from .step.commit import commit_tokens
from .step.diff import apply_diff
from .step.inputs import PlanColumns, StepInputs, build_step_inputs

__all__ = [
    "GREEDY_BELOW",
    "NO_TOKEN",
    "STREAM_GUMBEL",
    "AttentionPlan",
    "AttentionSplit",
    "Logprobs",
    "Penalties",
    "PlanColumns",
    "Routes",
    "SamplingColumns",
    "StepInputs",
    "TokenLists",
    "TokenRules",
    "add_logit_bias",
    "add_rms_norm",
    "allow_only",
    "apply_bitmask",
    "apply_diff",
    "apply_min_p",
    "apply_penalties",
    "apply_rope",
    "apply_rules",
    "apply_top_k",
    "apply_top_p",
    "ban_tokens",
    "ban_words",
    "build_step_inputs",
    "commit_tokens",
    "compute_logprobs",
    "count_tokens",
    "draw_greedy",
    "draw_gumbel",
    "draw_inverse_cdf",
    "draw_tokens",
    "draw_uniform",
    "draw_uniform_row",
    "fill_counts",
    "filter_logits",
    "find_threshold",
    "fp8_product",
    "gelu_tanh_mul",
    "gemv",
    "make_token_lists",
    "mix_experts",
    "paged_attention",
    "philox4x32",
    "plan_attention",
    "quantize_rms_norm",
    "quantize_silu_mul",
    "quantize_tokens",
    "quantize_weight",
    "rms_norm",
    "rope_and_write_kv",
    "route",
    "sample",
    "scale_tokens",
    "silu_mul",
    "split_attention",
    "write_kv",
]
