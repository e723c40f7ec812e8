"""Rotary position embedding as config.json describes it, in both of its spellings.

The older one has `rope_theta` beside `rope_scaling` (keyed by `type` or `rope_type`), the newer one has
all in `rope_parameters`. What is read here gives a table of cosines and sines for every position.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...protocol.errors import ModelError

_DEFAULT_THETA = 10_000.0


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """The rotary embedding of a model."""

    kind: str  # "default", "linear", "dynamic", "yarn" or "llama3"
    theta: float
    rot_dim: int  # rotated entries of a head
    max_positions: int  # max_position_embeddings
    options: Mapping[str, Any]  # what else the kind reads


def read_rope(config: Mapping[str, Any], head_dim: int) -> RopeConfig:
    """Read either spelling. Raises ModelError for an unknown kind or a missing entry."""
    options = dict(config.get("rope_scaling") or config.get("rope_parameters") or {})
    kind = options.get("rope_type", options.get("type", "default"))
    if kind not in _FREQUENCIES:
        raise ModelError(
            f"config.json: rope_type {kind!r} is not supported, only {', '.join(sorted(_FREQUENCIES))}"
        )
    if kind != "default" and not isinstance(options.get("factor"), int | float):
        raise ModelError(f"config.json: rope_type {kind!r} needs a factor, got {options.get('factor')!r}")
    max_positions = int(config.get("max_position_embeddings", 2048))
    original = config.get("original_max_position_embeddings")
    if original is not None:
        options["original_max_position_embeddings"] = original
    options.setdefault("original_max_position_embeddings", max_positions)
    partial = options.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    rope = RopeConfig(
        kind=kind,
        theta=float(options.get("rope_theta", config.get("rope_theta") or _DEFAULT_THETA)),
        rot_dim=int(head_dim * partial),
        max_positions=max_positions,
        options=options,
    )
    try:
        _FREQUENCIES[kind](rope)
    except KeyError as error:
        raise ModelError(f"config.json: rope_type {kind!r} needs {error.args[0]}") from error
    return rope


def rope_table(rope: RopeConfig, num_positions: int) -> Tensor:
    """Returns [num_positions, rot_dim] float32: cosines of the rot_dim / 2 frequencies, then sines."""
    frequencies, scale = _FREQUENCIES[rope.kind](rope)
    angles = torch.arange(num_positions, dtype=torch.float32).unsqueeze(1) * frequencies
    if rope.kind == "dynamic" and num_positions > rope.max_positions:
        angles[rope.max_positions :] = _dynamic_angles(rope, num_positions)
    return torch.cat((angles.cos(), angles.sin()), dim=-1) * scale


def _exponents(rope: RopeConfig) -> Tensor:
    return torch.arange(0, rope.rot_dim, 2, dtype=torch.float32) / rope.rot_dim


def _default(rope: RopeConfig) -> tuple[Tensor, float]:
    return 1.0 / rope.theta ** _exponents(rope), 1.0


def _linear(rope: RopeConfig) -> tuple[Tensor, float]:
    """Source: kaiokendev 2023, positions divided by a factor."""
    return _default(rope)[0] / rope.options["factor"], 1.0


def _dynamic_angles(rope: RopeConfig, num_positions: int) -> Tensor:
    """Angles behind the trained context, whose base grows with the length.

    A position has the base of a sequence that ends with it, as in decoding token by token: then a row does
    not depend on how its tokens were cut into steps.

    Source: bloc97 and emozilla 2023, "Dynamically scaled RoPE".
    """
    factor, dim = rope.options["factor"], rope.rot_dim
    positions = torch.arange(rope.max_positions, num_positions, dtype=torch.float32).unsqueeze(1)
    stretch = factor * (positions + 1) / rope.max_positions - (factor - 1)
    bases = rope.theta * stretch ** (dim / (dim - 2))
    return positions / bases ** _exponents(rope)


def _yarn(rope: RopeConfig) -> tuple[Tensor, float]:
    """Source: Peng et al. 2023, "YaRN: efficient context window extension"."""
    options, dim = rope.options, rope.rot_dim
    factor, original = options["factor"], options["original_max_position_embeddings"]

    def dim_of(num_rotations: float) -> float:
        return dim * math.log(original / (num_rotations * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = dim_of(options.get("beta_fast") or 32), dim_of(options.get("beta_slow") or 1)
    if options.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001  # the ramp is a step then
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    plain = _default(rope)[0]
    frequencies = plain / factor * ramp + plain * (1 - ramp)
    return frequencies, _yarn_scale(options, factor)


def _yarn_scale(options: Mapping[str, Any], factor: float) -> float:
    def magnitude(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    given = options.get("attention_factor")
    if given is not None:
        return float(given)
    mscale, mscale_all = options.get("mscale"), options.get("mscale_all_dim")
    if mscale and mscale_all:
        return magnitude(mscale) / magnitude(mscale_all)
    return magnitude(1.0)


def _llama3(rope: RopeConfig) -> tuple[Tensor, float]:
    """Source: Meta 2024, the reference code of Llama 3.1."""
    options = rope.options
    factor, original = options["factor"], options["original_max_position_embeddings"]
    low, high = options["low_freq_factor"], options["high_freq_factor"]
    plain = _default(rope)[0]
    rotations = original * plain / (2 * math.pi)
    smooth = ((rotations - low) / (high - low)).clamp(0, 1)
    return plain * smooth + plain / factor * (1 - smooth), 1.0


_FREQUENCIES: dict[str, Callable[[RopeConfig], tuple[Tensor, float]]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _default,
    "yarn": _yarn,
    "llama3": _llama3,
}
