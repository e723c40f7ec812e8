"""The KV cache of a model on the CPU, and the attention of its layers over it."""

import torch
from torch import Tensor

from ...kernels import cpu as kernels
from ...protocol.errors import OutOfMemoryError
from ...protocol.lifecycle import KVGroup
from ..models.config import ModelConfig
from ..models.layers import AttentionSpec
from ..models.rope import rope_table
from ..rows import RowTable, StepInputs
from .memory import lazy_zeros

_GIB = 1 << 30


class CpuAttention:
    """One cache tensor [num_slots, 2, num_kv_heads, head_dim] for each layer; all layers are one KV group."""

    def __init__(self, config: ModelConfig, group: KVGroup, max_model_len: int, dtype: torch.dtype) -> None:
        self.groups: tuple[KVGroup, ...] = (group,)
        shape = (group.num_blocks * group.block_size, 2, config.num_kv_heads, config.head_dim)
        self._caches = [lazy_zeros(shape, dtype) for _ in range(config.num_layers)]
        self._rope = rope_table(config.rope, max_model_len)

    def begin(self, inputs: StepInputs, table: RowTable) -> "StepAttention":
        """Plan a step; what it returns is called by each layer."""
        plan = kernels.plan_attention(
            torch.from_numpy(table.tables[0][inputs.rows]),
            inputs.first.tolist(),
            inputs.num_tokens.tolist(),
            (inputs.start + inputs.num_tokens).tolist(),
            torch.from_numpy(inputs.slots[0]),
            block_size=self.groups[0].block_size,
            dtype=self._caches[0].dtype,
            window=self.groups[0].window,
        )
        return StepAttention(
            self._caches, plan, kernels.gather_rope(self._rope, torch.from_numpy(inputs.positions))
        )


class StepAttention:
    """The attention of one step."""

    def __init__(self, caches: list[Tensor], plan: kernels.AttentionPlan, rope: kernels.RopeRows) -> None:
        self._caches = caches
        self._plan = plan
        self._rope = rope

    def __call__(self, spec: AttentionSpec, qkv: Tensor) -> Tensor:
        num_rotated = spec.num_heads + spec.num_kv_heads
        heads = qkv.view(qkv.shape[0], -1, spec.head_dim)
        if spec.q_norm is not None and spec.k_norm is not None:
            queries, keys = heads[:, : spec.num_heads], heads[:, spec.num_heads : num_rotated]
            queries.copy_(kernels.rms_norm(queries, spec.q_norm, spec.norm_eps))
            keys.copy_(kernels.rms_norm(keys, spec.k_norm, spec.norm_eps))
        kernels.apply_rope(heads[:, :num_rotated], self._rope)
        kv = heads[:, spec.num_heads :].view(-1, 2, spec.num_kv_heads, spec.head_dim)
        return kernels.attend(
            heads[:, : spec.num_heads], kv, self._caches[spec.layer], self._plan, spec.scale
        )


def size_kv_group(
    config: ModelConfig,
    *,
    dtype: torch.dtype,
    block_size: int,
    num_blocks: int,
    memory_bytes: int,
    max_model_len: int,
) -> KVGroup:
    """The KV cache's size: `num_blocks` if given, else what `memory_bytes` hold.

    Raises OutOfMemoryError that says what to change when not even one block fits.
    """
    token_bytes = 2 * config.num_layers * config.kv_size * dtype.itemsize
    block_bytes = token_bytes * block_size
    if not num_blocks:
        num_blocks = memory_bytes // block_bytes
    if num_blocks < 1:
        raise OutOfMemoryError(
            f"a KV block of {block_size} tokens takes {block_bytes} bytes, the KV cache has {memory_bytes}: "
            f"raise --kv-cache-memory-bytes (a whole context of {max_model_len} tokens takes "
            f"{token_bytes * max_model_len / _GIB:.2f} GiB) or lower --block-size"
        )
    return KVGroup(num_blocks=num_blocks, block_size=block_size)
