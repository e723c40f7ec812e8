"""Which file reads which architecture."""

import json
from collections.abc import Callable
from pathlib import Path

from ...protocol.errors import ModelError
from . import gemma2, gemma3, llama, mistral, mixtral, phi3, qwen2, qwen3, qwen3_moe
from .config import Json, ModelConfig

_READERS: dict[str, Callable[[Json], ModelConfig]] = {
    "Gemma2ForCausalLM": gemma2.read,
    "Gemma3ForCausalLM": gemma3.read,
    "LlamaForCausalLM": llama.read,
    "MistralForCausalLM": mistral.read,
    "MixtralForCausalLM": mixtral.read,
    "Phi3ForCausalLM": phi3.read,
    "Qwen2ForCausalLM": qwen2.read,
    "Qwen3ForCausalLM": qwen3.read,
    "Qwen3MoeForCausalLM": qwen3_moe.read,
}


def supported() -> list[str]:
    """The names config.json's `architectures` may hold."""
    return sorted(_READERS)


def read_config(folder: Path) -> ModelConfig:
    """Read a model folder's config.json. Raises ModelError for a model that cannot be run."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(f"{folder} has no config.json") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    names = config.get("architectures") if isinstance(config, dict) else None
    if not names:
        raise ModelError(f"{path} names no architecture")
    if names[0] not in _READERS:
        raise ModelError(
            f"{path}: architecture {names[0]!r} is not supported; supported are {', '.join(supported())}"
        )
    return _READERS[names[0]](config)
