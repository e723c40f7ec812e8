"""The KV cache of a model on the CPU, and the attention of its layers over it."""

import torch
from torch import Tensor

from ...kernels import cpu as kernels
from ...protocol.lifecycle import KVGroup
from ..models.config import ModelConfig
from ..models.layers import AttentionSpec
from ..models.rope import rope_table
from ..rows import RowTable, StepInputs
from .memory import lazy_zeros


class CpuAttention:
    """One cache tensor [num_slots, 2, num_kv_heads, head_dim] for each layer, as large as its KV group."""

    def __init__(
        self, config: ModelConfig, groups: tuple[KVGroup, ...], max_model_len: int, dtype: torch.dtype
    ) -> None:
        self.groups = groups
        self._dtype = dtype
        self._caches: dict[int, Tensor] = {}
        for group, layers in zip(groups, config.groups, strict=True):
            shape = (group.num_blocks * group.block_size, 2, config.num_kv_heads, config.head_dim)
            self._caches |= {layer: lazy_zeros(shape, dtype) for layer in layers.layers}
        self._ropes = [rope_table(rope, max_model_len) for rope in config.ropes]

    def begin(self, inputs: StepInputs, table: RowTable) -> "StepAttention":
        """Plan a step; what it returns is called by each layer."""
        first, num_tokens = inputs.first.tolist(), inputs.num_tokens.tolist()
        seq_lens = (inputs.start + inputs.num_tokens).tolist()
        plans = [
            kernels.plan_attention(
                torch.from_numpy(blocks[inputs.rows]),
                first,
                num_tokens,
                seq_lens,
                torch.from_numpy(slots),
                block_size=group.block_size,
                dtype=self._dtype,
                window=group.window,
            )
            for group, blocks, slots in zip(self.groups, table.tables, inputs.slots, strict=True)
        ]
        positions = torch.from_numpy(inputs.positions)
        return StepAttention(
            self._caches, plans, [kernels.gather_rope(rope, positions) for rope in self._ropes]
        )


class StepAttention:
    """The attention of one step."""

    def __init__(
        self,
        caches: dict[int, Tensor],
        plans: list[kernels.AttentionPlan],
        ropes: list[kernels.RopeRows],
    ) -> None:
        self._caches = caches
        self._plans = plans
        self._ropes = ropes

    def __call__(self, spec: AttentionSpec, qkv: Tensor) -> Tensor:
        num_rotated = spec.num_heads + spec.num_kv_heads
        heads = qkv.view(qkv.shape[0], -1, spec.head_dim)
        if spec.q_norm is not None and spec.k_norm is not None:
            queries, keys = heads[:, : spec.num_heads], heads[:, spec.num_heads : num_rotated]
            queries.copy_(kernels.rms_norm(queries, spec.q_norm, spec.norm_eps))
            keys.copy_(kernels.rms_norm(keys, spec.k_norm, spec.norm_eps))
        kernels.apply_rope(heads[:, :num_rotated], self._ropes[spec.rope])
        kv = heads[:, spec.num_heads :].view(-1, 2, spec.num_kv_heads, spec.head_dim)
        return kernels.attend(
            heads[:, : spec.num_heads],
            kv,
            self._caches[spec.layer],
            self._plans[spec.group],
            spec.scale,
            spec.softcap,
        )
