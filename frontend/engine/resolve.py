"""From a model's name to what the processes must know of it, read without loading a weight."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...protocol.errors import ModelError
from ..demo import DEMO_MODEL_NAME, ensure_demo_model
from ..gguf import gguf_folder
from .args import EngineArgs

_DEMO = "demo"


@dataclass(frozen=True)
class ResolvedModel:
    """A model on this machine's disk."""

    path: Path
    served_name: str
    tokenizer_path: Path
    vocab_size: int  # rows of the embedding
    max_model_len: int  # tokens of prompt and output
    eos_token_ids: tuple[int, ...]


def resolve_model(args: EngineArgs) -> ResolvedModel:
    """Find the model's folder, fetching it where that is needed, and read its configuration.

    Raises ModelError with one line that says what is wrong.
    """
    path = _folder(args.model)
    config = _read_json(path / "config.json")
    nested = config.get("text_config")
    text_config = nested if isinstance(nested, dict) else config
    vocab_size = text_config.get("vocab_size")
    if not isinstance(vocab_size, int) or vocab_size < 1:
        raise ModelError(f"{path / 'config.json'} names no vocab_size")
    if args.load_format != "dummy" and args.device != "sim":
        _check_weights(path)
    return ResolvedModel(
        path=path,
        served_name=args.served_model_name or (DEMO_MODEL_NAME if args.model == _DEMO else args.model),
        tokenizer_path=path if args.tokenizer is None else _tokenizer_folder(args.tokenizer),
        vocab_size=vocab_size,
        max_model_len=_max_model_len(args, text_config),
        eos_token_ids=_eos_ids(path, config, text_config),
    )


def _tokenizer_folder(tokenizer: str) -> Path:
    path = Path(tokenizer).expanduser()
    if not path.is_dir():
        raise ModelError(f"no tokenizer folder at {tokenizer!r}")
    return path.resolve()


def _folder(model: str) -> Path:
    if model == _DEMO:
        return ensure_demo_model()
    path = Path(model).expanduser()
    if path.is_dir():
        return path.resolve()
    if path.suffix == ".gguf" and path.is_file():
        return gguf_folder(path.resolve())
    if path.exists() or model.startswith((".", "/", "~")) or model.count("/") != 1:
        raise ModelError(f"no model folder at {model!r}")
    return _from_hub(model)


def _from_hub(model: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    patterns = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
    try:
        return Path(snapshot_download(model, allow_patterns=patterns))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"{model!r} is no local folder and could not be fetched from the hub: {reason}"
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path.parent} holds no {path.name}") from None
    except (ValueError, OSError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} is no JSON object")
    return content


def _check_weights(path: Path) -> None:
    """Every file that the weights need is there; what is in them is the worker's to check."""
    index = path / "model.safetensors.index.json"
    if index.exists():
        shards = _read_json(index).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise ModelError(f"{index} names no weights")
        for shard in sorted(set(map(str, shards.values()))):
            if not (path / shard).is_file():
                raise ModelError(f"{index.name} names {shard}, which is not in {path}")
    elif not any(path.glob("*.safetensors")):
        pickled = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in path.glob(pattern))
        hint = f"; {pickled[0]} is pickled, and pickled weights are never read" if pickled else ""
        raise ModelError(f"{path} holds no .safetensors file{hint}")


def _max_model_len(args: EngineArgs, config: dict[str, Any]) -> int:
    longest = config.get("max_position_embeddings")
    if not isinstance(longest, int):
        if args.max_model_len is None:
            raise ModelError("the model's config.json names no max_position_embeddings; give max_model_len")
        return args.max_model_len
    scaling = config.get("rope_parameters") or config.get("rope_scaling")
    # Gemma 3 gives the number behind scaling.
    if isinstance(scaling, dict) and not str(config.get("model_type")).startswith("gemma3"):
        longest = _stretched(longest, scaling)
    if args.max_model_len is None:
        return longest
    if args.max_model_len > longest:
        raise ModelError(f"max_model_len {args.max_model_len} is beyond the model's {longest} positions")
    return args.max_model_len


def _stretched(longest: int, scaling: dict[str, Any]) -> int:
    """Positions that RoPE scaling reaches where the configuration gives the unscaled number."""
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor")
    original = scaling.get("original_max_position_embeddings")
    if kind not in ("linear", "dynamic", "yarn") or not isinstance(factor, int | float):
        return longest
    if not isinstance(original, int):
        return int(longest * factor)
    return max(longest, int(original * factor)) if kind == "yarn" else longest


def _eos_ids(path: Path, *configs: dict[str, Any]) -> tuple[int, ...]:
    generation = path / "generation_config.json"
    sources = [_read_json(generation)] if generation.exists() else []
    found: set[int] = set()
    for source in [*sources, *configs]:
        value = source.get("eos_token_id")
        ids = value if isinstance(value, list) else [value]
        found.update(token for token in ids if isinstance(token, int))
    return tuple(sorted(found))
