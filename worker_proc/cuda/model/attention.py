"""The KV cache of a model on a CUDA device, and the attention of a step over it."""

import torch
from torch import Tensor

from ....kernels import device as kernels
from ....protocol.lifecycle import KVGroup
from ...models.config import ModelConfig
from ...models.layers import AttentionSpec
from ...models.rope import rope_table
from ..steps.tensors import StepTensors
from .arena import Arena


class CudaAttention:
    """Keys and values [num_blocks, block_size, num_kv_heads, head_dim] for each layer; one KV group."""

    def __init__(
        self,
        config: ModelConfig,
        tables: Tensor,
        arena: Arena,
        *,
        max_rows: int,
        max_tokens: int,
        max_model_len: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self._config = config
        self._tables = tables
        self._arena = arena
        self._dtype = dtype
        self._device = device
        self._rope = rope_table(config.rope, max_model_len).to(device)
        self._plan = kernels.make_attention_plan(
            max_rows,
            max_tokens,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            device=device,
        )
        self.block_size = 0
        self._caches: list[Tensor] = []

    def allocate(self, group: KVGroup) -> None:
        """Make the cache, in place of one made before. Its slots are not cleared: no row reads what it has
        not written."""
        self._caches = []
        self.block_size = group.block_size
        config = self._config
        shape = (2, group.num_blocks, group.block_size, config.num_kv_heads, config.head_dim)
        self._caches = [
            torch.empty(shape, dtype=self._dtype, device=self._device) for _ in range(config.num_layers)
        ]

    def begin(self, step: StepTensors) -> "StepAttention":
        """Plan the step's work on the device; what is returned is called by each layer."""
        inputs = step.inputs
        kernels.plan_attention(
            self._plan, step.columns.query_start, inputs.seq_lens, num_tokens=len(inputs.token_ids)
        )
        return StepAttention(self, step)

    def attend(self, step: StepTensors, spec: AttentionSpec, qkv: Tensor, scales: Tensor | None) -> Tensor:
        """Rotate, write the cache, attend; see `Attend`. `scales` [num_tokens] are factors of the tokens."""
        inputs = step.inputs
        heads = qkv.view(len(qkv), -1, spec.head_dim)
        q, k, v = heads.split((spec.num_heads, spec.num_kv_heads, spec.num_kv_heads), dim=1)
        k_cache, v_cache = self._caches[spec.layer].unbind()
        # Between cuBLAS products, which know nothing of it, an early start gains nothing.
        pdl = step.size.lone and qkv.is_cuda
        kernels.rope_and_write_kv(
            q,
            k,
            v,
            inputs.positions,
            self._rope,
            k_cache,
            v_cache,
            inputs.slots[0],
            q_weight=spec.q_norm,
            k_weight=spec.k_norm,
            eps=spec.norm_eps,
            scale=scales,
            pdl=pdl,
        )
        out = self._arena.take("attended", len(qkv), spec.num_heads * spec.head_dim, qkv.dtype)
        kernels.paged_attention(
            q,
            k_cache,
            v_cache,
            self._tables[0],
            step.columns.query_start,
            inputs.seq_lens,
            scale=spec.scale,
            out=out.view(len(qkv), spec.num_heads, spec.head_dim),
            plan=self._plan,
            rows=inputs.rows,
            decodes_only=step.size.decodes_only,
            pdl=pdl,
        )
        return out


class StepAttention:
    """The attention of one step."""

    def __init__(self, attention: CudaAttention, step: StepTensors) -> None:
        self._attention = attention
        self._step = step

    def __call__(self, spec: AttentionSpec, qkv: Tensor, scales: Tensor | None = None) -> Tensor:
        return self._attention.attend(self._step, spec, qkv, scales)
