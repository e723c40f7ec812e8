"""Attention of a step's tokens over the paged KV cache: decode rows and prompt chunks in one call."""

import torch
from torch import Tensor

from ..checks import check, check_same_device, check_shape, new_output
from ..layers.kv_cache import check_cache
from .decode import DecodeConfig, decode_config, launch_decode
from .plan import AttentionPlan, make_attention_plan, plan_attention
from .prompt import launch_prompts

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_start: Tensor,
    seq_lens: Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    out: Tensor | None = None,
    plan: AttentionPlan | None = None,
    rows: Tensor | None = None,
    decodes_only: bool = False,
    pdl: bool = False,
    config: DecodeConfig | None = None,
) -> Tensor:
    """See `reference.paged_attention`. Padding tokens of `out` are left as they are.

    Args:
        plan: filled by `plan_attention` for this step and window. Without one the call makes its own.
        rows: [R] int64 when block_tables holds permanent rows: which of them each of the R rows is.
        decodes_only: no row has more than one query, so the prompt kernel is not launched.
        pdl: the launch in front is a Triton kernel, and the decode kernel may start while it runs. The plan
            must have been made at least one full launch earlier.
        config: of the decode kernel; by default what measured best.
    """
    if out is None:
        out = new_output("out", tuple(q.shape), q)
    _check(q, k_cache, v_cache, block_tables, query_start, seq_lens, out, rows)
    if plan is None:
        plan = _own_plan(q, query_start, seq_lens, k_cache.shape[2], window)
    options = {
        "scale": scale,
        "window": window or 0,
        "softcap": softcap or 0.0,
        # The default precision of a float32 product on this hardware, tf32, keeps 10 bits.
        "precision": "ieee" if q.dtype == torch.float32 else "tf32",
    }
    tensors = (q, k_cache, v_cache, block_tables, rows, query_start, seq_lens, out, plan)
    launch_decode(*tensors, **options, pdl=pdl, config=config or decode_config(k_cache.shape[1]))
    if not decodes_only:
        launch_prompts(*tensors, **options)
    return out


def _check(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_start: Tensor,
    seq_lens: Tensor,
    out: Tensor,
    rows: Tensor | None,
) -> None:
    check("q", q, dim=3, dtype=_FLOATS)
    check_cache(k_cache, v_cache)
    check("block_tables", block_tables, dim=2, dtype=torch.int32)
    check("query_start", query_start, dim=1, dtype=torch.int32)
    check("seq_lens", seq_lens, dim=1, dtype=torch.int32)
    num_heads, head_dim = q.shape[1:]
    num_rows, num_kv_heads = seq_lens.shape[0], k_cache.shape[2]
    check_shape("query_start", query_start, (num_rows + 1,))
    check_shape("k_cache", k_cache, (*k_cache.shape[:3], head_dim))
    if num_heads % num_kv_heads:
        raise ValueError(f"q has {num_heads} heads, no multiple of the {num_kv_heads} of k_cache")
    if rows is not None:
        check("rows", rows, dim=1, dtype=torch.int64)
        check_shape("rows", rows, (num_rows,))
    check_shape("out", out, tuple(q.shape))
    for name, tensor in (("q", q), ("out", out)):
        if tensor.stride(1) != head_dim or tensor.stride(2) != 1:
            raise ValueError(f"{name} must have adjacent heads, its strides are {tensor.stride()}")
    check_same_device(q=q, k_cache=k_cache, block_tables=block_tables, seq_lens=seq_lens, out=out, rows=rows)


def _own_plan(
    q: Tensor, query_start: Tensor, seq_lens: Tensor, num_kv_heads: int, window: int | None
) -> AttentionPlan:
    if q.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("plan must be passed in while a graph is captured")
    num_tokens, num_heads, head_dim = q.shape
    plan = make_attention_plan(
        seq_lens.shape[0],
        num_tokens,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        device=q.device,
    )
    plan_attention(plan, query_start, seq_lens, num_tokens=num_tokens, window=window)
    return plan
