"""Sampling parameters that a model's folder recommends."""

import json
from pathlib import Path

from ...protocol.sampling import SamplingParams

_FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def default_sampling_params(folder: Path) -> SamplingParams:
    """What generation_config.json says, on top of the library's defaults."""
    path = folder / "generation_config.json"
    if not path.exists():
        return SamplingParams()
    config = json.loads(path.read_text(encoding="utf-8"))
    chosen = {name: config[name] for name in _FIELDS if config.get(name) is not None}
    if isinstance(config.get("max_new_tokens"), int):
        chosen["max_tokens"] = config["max_new_tokens"]
    return SamplingParams(**chosen)
