"""Engine arguments and model folders: what is wrong is said in one line that names it."""

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.frontend.engine.args import EngineArgs, engine_args
from octavo.frontend.engine.resolve import resolve_model
from octavo.protocol.errors import ModelError, UsageError


def model(folder: Path, *, weights: str | None = "model.safetensors", **config: Any) -> Path:
    """A folder that looks like a model; its weights are empty files."""
    content = {"vocab_size": 100, "max_position_embeddings": 4096, "eos_token_id": 2, **config}
    (folder / "config.json").write_text(json.dumps(content))
    if weights:
        (folder / weights).touch()
    return folder


def refused(folder: Path | str, **arguments: Any) -> str:
    with pytest.raises(ModelError) as caught:
        resolve_model(EngineArgs(model=str(folder), **arguments))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_a_folder_says(tmp_path: Path) -> None:
    model(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 2]}')
    found = resolve_model(EngineArgs(model=str(tmp_path), served_model_name="mine", max_model_len=100))
    assert (found.path, found.served_name, found.vocab_size) == (tmp_path, "mine", 100)
    assert (found.max_model_len, found.eos_token_ids) == (100, (2, 7))


@pytest.mark.parametrize("name", ["./nothing", "/no/such/folder", "~/no-such-folder-here", "nothing"])
def test_wrong_path(name: str) -> None:
    assert repr(name) in refused(name)


def test_o62_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    assert "holds no config.json" in refused(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert "config.json cannot be read" in refused(tmp_path)
    model(tmp_path, weights=None, vocab_size=None)
    assert "vocab_size" in refused(tmp_path)
    model(tmp_path, weights="pytorch_model.bin")
    assert "pytorch_model.bin is pickled" in refused(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}')
    (tmp_path / "one.safetensors").touch()
    assert "two.safetensors, which is not in" in refused(tmp_path)
    index.write_text("{}")
    assert "names no weights" in refused(tmp_path)


def test_lengths_and_tokenizer(tmp_path: Path) -> None:
    model(tmp_path)
    assert "5000 is beyond the model's 4096" in refused(tmp_path, max_model_len=5000)
    assert "no tokenizer folder at 'typo'" in refused(tmp_path, tokenizer="typo")
    model(tmp_path, max_position_embeddings=None)
    assert "give max_model_len" in refused(tmp_path)


@pytest.mark.parametrize(
    ("scaling", "longest"),
    [
        ({"rope_theta": 5e5}, 4096),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 8192),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, 8192),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, 8192),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, 4096),
        ({"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "model_type": "gemma3_text"}, 4096),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}},
            8192,
        ),
        (
            {"rope_scaling": {"type": "llama3", "factor": 8.0, "original_max_position_embeddings": 512}},
            4096,
        ),
    ],
)
def test_o62_both_spellings_of_rope_give_the_length(
    tmp_path: Path, scaling: dict[str, Any], longest: int
) -> None:
    assert resolve_model(EngineArgs(model=str(model(tmp_path, **scaling)))).max_model_len == longest


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_model_len", 0),
        ("max_model_len", 10.5),
        ("max_num_seqs", None),
        ("max_num_seqs", True),
        ("gpu_memory_utilization", 1.5),
        ("gpu_memory_utilization", float("nan")),
        ("request_timeout", -1),
        ("tensor_parallel_size", 0),
        ("seed", "0"),
        ("device", "tpu"),
        ("dtype", "int8"),
        ("quantization", "awq"),
        ("enable_prefix_caching", "no"),
        ("journal", 3),
        ("model", ""),
        ("trust_remote_code", True),
        ("no_such_argument", 1),
    ],
)
def test_wrong_argument_is_named(name: str, value: object) -> None:
    with pytest.raises(UsageError) as caught:
        engine_args(**{"model": "demo", name: value})  # type: ignore[arg-type]
    assert name in str(caught.value) and caught.value.param == name and "\n" not in str(caught.value)
