"""The KV cache of a model on a CUDA device, and the attention of a step over it."""

from collections.abc import Sequence

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
    """Keys and values [num_blocks, block_size, num_kv_heads, head_dim] for each layer; groups by window."""

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
        self._ropes = [rope_table(rope, max_model_len).to(device) for rope in config.ropes]
        self._windows = [group.window for group in config.groups]
        self._plans = [
            kernels.make_attention_plan(
                max_rows,
                max_tokens,
                num_heads=config.num_heads,
                num_kv_heads=config.num_kv_heads,
                head_dim=config.head_dim,
                device=device,
            )
            for _ in self._windows
        ]
        self.block_size = 0
        self._caches: list[Tensor] = []

    def allocate(self, groups: Sequence[KVGroup]) -> None:
        """Make the cache, in place of one made before. Its slots are not cleared: no row reads what it has
        not written."""
        self._caches = []
        self.block_size = groups[0].block_size
        config = self._config
        num_blocks = [0] * config.num_layers
        for group, layers in zip(groups, config.groups, strict=True):
            for layer in layers.layers:
                num_blocks[layer] = group.num_blocks
        shape = (self.block_size, config.num_kv_heads, config.head_dim)
        self._caches = [
            torch.empty((2, number, *shape), dtype=self._dtype, device=self._device) for number in num_blocks
        ]

    def begin(self, step: StepTensors) -> "StepAttention":
        """Plan the step's work on the device; what is returned is called by each layer."""
        inputs = step.inputs
        for plan, window in zip(self._plans, self._windows, strict=True):
            kernels.plan_attention(
                plan,
                step.columns.query_start,
                inputs.seq_lens,
                num_tokens=len(inputs.token_ids),
                window=window,
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
            self._ropes[spec.rope],
            k_cache,
            v_cache,
            inputs.slots[spec.group],
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
            self._tables[spec.group],
            step.columns.query_start,
            inputs.seq_lens,
            scale=spec.scale,
            window=self._windows[spec.group],
            softcap=spec.softcap,
            out=out.view(len(qkv), spec.num_heads, spec.head_dim),
            plan=self._plans[spec.group],
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
