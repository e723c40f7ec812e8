"""Reading the small JSON files of a model folder."""

import json
from pathlib import Path
from typing import Any

from ...protocol.errors import ModelError


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; {} when there is no such file. Raises ModelError when it is broken."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"cannot read {path}: it holds no JSON object")
    return content


def token_ids(value: Any) -> list[int]:
    """The ids in a config entry that is one id, a list of ids, or absent."""
    if value is None:
        return []
    return [int(item) for item in value] if isinstance(value, list) else [int(value)]
