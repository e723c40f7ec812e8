"""Sampling parameters that a model's folder recommends."""

import json
from pathlib import Path

from ...protocol.errors import ModelError
from ...protocol.sampling import SamplingParams

_FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def default_sampling_params(folder: Path) -> SamplingParams:
    """What generation_config.json says, on top of the library's defaults.

    Raises ModelError for a file that cannot be read or recommends values that do not exist.
    """
    path = folder / "generation_config.json"
    if not path.exists():
        return SamplingParams()
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        chosen = {name: config[name] for name in _FIELDS if config.get(name) is not None}
        if config.get("max_new_tokens") is not None:
            chosen["max_tokens"] = config["max_new_tokens"]
        return SamplingParams(**chosen)
    except (ValueError, AttributeError) as error:  # an invalid parameter is a ValueError too
        raise ModelError(f"{path} recommends no sampling parameters: {error}") from error
