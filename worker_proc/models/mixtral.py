"""Mixtral: Mistral's attention, and two of several experts for each token."""

from .config import Json, ModelConfig, positive, read_common, read_windows
from .experts import ExpertsConfig

_THETA = 1e6


def read(config: Json) -> ModelConfig:
    """Traits of `MixtralForCausalLM`."""
    full = {"rope_theta": _THETA, "num_local_experts": 8, "num_experts_per_tok": 2, **config}
    experts = ExpertsConfig(
        count=positive(full, "num_local_experts"),
        per_token=positive(full, "num_experts_per_tok"),
        intermediate_size=positive(full, "intermediate_size"),
        renormalize=True,
        block="block_sparse_moe",
        gate="w1",
        up="w3",
        down="w2",
    )
    return read_common(full, experts=experts, windows=read_windows(full))
