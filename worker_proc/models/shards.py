"""What one rank of a tensor-parallel group holds of a model.

Attention is divided by heads and the feed-forward by its inner features: the projections into them are cut by
rows, those out of them by columns, so that a layer's halves each end with one sum over the ranks
(Megatron-LM, arXiv:1909.08053). The head is cut by tokens of the vocabulary; embeddings and norms are whole.
"""

from dataclasses import replace

from ...protocol.errors import UsageError
from .config import ModelConfig
from .cuts import Cut


class Shard:
    """One rank's share. Shares need not be equal: heads go in whole KV heads while there are enough.

    Attributes:
        config: the model as this rank computes it.
        leads: this is rank 0, which adds what is to be added once.
    """

    def __init__(self, model: ModelConfig, rank: int = 0, size: int = 1) -> None:
        """Raises UsageError for a model that cannot be divided so."""
        self.leads = rank == 0
        q, kv = _heads(model, rank, size)
        inner = _part(model.intermediate_size, rank, size, "intermediate_size")
        head_dim, full_q, full_kv = model.head_dim, model.num_heads, model.num_kv_heads
        self.q = _cut(full_q * head_dim, [_scaled(q, head_dim)])
        self.kv = _cut(full_kv * head_dim, [_scaled(kv, head_dim)])
        self.qkv = _cut(
            (full_q + 2 * full_kv) * head_dim,
            [_scaled(q, head_dim), *(_scaled(kv, head_dim, full_q + at * full_kv) for at in range(2))],
        )
        self.inner = _cut(model.intermediate_size, [inner])
        self.gate_up = _cut(
            2 * model.intermediate_size, [inner, (model.intermediate_size + inner[0], inner[1])]
        )
        self.vocab = _cut(model.vocab_size, [_part(model.vocab_size, rank, size, "vocab_size")])
        experts = model.experts
        self.expert_inner = self.inner
        if experts is not None:
            part = _part(experts.intermediate_size, rank, size, "the experts' intermediate_size")
            self.expert_inner = _cut(experts.intermediate_size, [part])
            experts = experts._replace(intermediate_size=part[1])
        self.config = replace(
            model,
            num_heads=q[1],
            num_kv_heads=kv[1],
            intermediate_size=inner[1],
            experts=experts,
        )


def _heads(model: ModelConfig, rank: int, size: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Start and number of a rank's query heads, and of its KV heads."""
    per_kv = model.num_heads // model.num_kv_heads
    if size <= model.num_kv_heads:
        kv = _part(model.num_kv_heads, rank, size, "num_key_value_heads")
        return (kv[0] * per_kv, kv[1] * per_kv), kv
    # More ranks than KV heads: ranks that share one hold it each, and divide its query heads.
    head = rank * model.num_kv_heads // size
    sharing = [other for other in range(size) if other * model.num_kv_heads // size == head]
    start, count = _part(per_kv, rank - sharing[0], len(sharing), "query heads of a key-value head")
    return (head * per_kv + start, count), (head, 1)


def _part(total: int, rank: int, size: int, what: str) -> tuple[int, int]:
    if total < size:
        raise UsageError(
            f"tensor_parallel_size {size} is more than the model can be divided by: {what} is {total}",
            param="tensor_parallel_size",
        )
    start, stop = -(-total * rank // size), -(-total * (rank + 1) // size)
    return start, stop - start


def _scaled(span: tuple[int, int], unit: int, offset: int = 0) -> tuple[int, int]:
    return (offset + span[0]) * unit, span[1] * unit


def _cut(full: int, spans: list[tuple[int, int]]) -> Cut:
    return Cut(full, tuple(spans))
