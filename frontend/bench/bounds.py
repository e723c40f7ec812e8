"""What a device needs at least for a piece of work: to read, and to multiply."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .work import Work

# Measured on an H200: the best read seen, and a large bf16 product of random numbers.
_BYTES_PER_SECOND = 4.5e12
_FLOPS = 775e12


@dataclass(frozen=True)
class ModelCost:
    """What a token costs, read off a config.json."""

    weights: int  # numbers in matrices that every token meets
    weight_bytes: int  # bytes of those
    kv_bytes: int  # of a token in the cache


def model_cost(config: Mapping[str, Any], *, layer_bytes: int = 2) -> ModelCost:
    """The cost of a Llama-like model in 16 bits, but for its layers' numbers of `layer_bytes` bytes.

    Products count at the rate of 16 bits.
    """
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or hidden // heads
    attention = 2 * hidden * head_dim * (heads + kv_heads)
    layers = config["num_hidden_layers"] * (attention + 3 * hidden * config["intermediate_size"])
    head = config["vocab_size"] * hidden
    return ModelCost(
        weights=layers + head,
        weight_bytes=layers * layer_bytes + head * 2,
        kv_bytes=4 * config["num_hidden_layers"] * kv_heads * head_dim,
    )


def least_seconds(work: Work, cost: ModelCost, *, concurrency: int = 0) -> float:
    """Prompts at the product's rate, then steps that read all weights and each row's keys and values.

    Attention's own products are left out, and steps are as few as the longest output allows, or as rows so
    many at a time do.
    """
    reading = 2 * cost.weights * work.num_prompt_tokens / _FLOPS
    steps = max(output for _, output in work.lengths) - 1
    if concurrency:
        steps = max(steps, (work.num_output_tokens - len(work.lengths)) // concurrency)
    context = sum((prompt + output / 2) * (output - 1) for prompt, output in work.lengths)
    bytes_read = steps * cost.weight_bytes + context * cost.kv_bytes
    products = 2 * cost.weights * (work.num_output_tokens - len(work.lengths)) / _FLOPS
    return reading + max(bytes_read / _BYTES_PER_SECOND, products)
