"""Broken checkpoints: each is refused with one line that names the file or the tensor."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo.protocol.errors import ModelError, StartupError, UsageError

from ..support.cpu_runner import make_cpu_runner, reference_greedy
from ..support.driver import Driver
from ..support.models import make_ctx_model

Q = "model.layers.0.self_attn.q_proj.weight"
NORM = "model.norm.weight"
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def edit_config(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    change(weights)
    save_file(weights, path)


def edit_header(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "model.safetensors"
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def cut(folder: Path, keep: float) -> None:
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])


def rename(folder: Path, name: str) -> None:
    (folder / "model.safetensors").rename(folder / name)


def poke(name: str, value: float) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        edit_weights(folder, lambda weights: weights[name].view(-1)[5].fill_(value))

    return change


def replace(name: str, make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        edit_weights(folder, lambda weights: weights.update({name: make(weights[name]).contiguous()}))

    return change


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), "config.json"),
    "config is no JSON": (lambda f: (f / "config.json").write_text("{") and None, "config.json"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]") and None, "architecture"),
    "unknown architecture": (lambda f: edit_config(f, architectures=["MambaForCausalLM"]), "Mamba.*Llama"),
    "unknown rope_type": (
        lambda f: edit_config(f, rope_parameters={"rope_type": "spiral", "rope_theta": 1e4}), "spiral.*yarn"
    ),
    "rope without its factor": (lambda f: edit_config(f, rope_scaling={"type": "linear"}), "factor"),
    "llama3 rope without its bounds": (
        lambda f: edit_config(f, rope_scaling={"rope_type": "llama3", "factor": 8.0}), "low_freq_factor"
    ),
    "unknown activation": (lambda f: edit_config(f, hidden_act="gelu"), "gelu"),
    "a size that is missing": (lambda f: edit_config(f, hidden_size=None), "hidden_size"),
    "heads that do not divide": (lambda f: edit_config(f, num_key_value_heads=3), "num_key_value_heads"),
    "quantized weights": (lambda f: edit_config(f, quantization_config={"quant_method": "gptq"}), "gptq"),
    "unknown dtype": (lambda f: edit_config(f, dtype="int8"), "int8"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "safetensors"),
    "pickled weights": (lambda f: rename(f, "pytorch_model.bin"), "pickled.*pytorch_model.bin"),
    "empty file": (lambda f: (f / "model.safetensors").write_bytes(b"") and None, "model.safetensors"),
    "garbage": (lambda f: (f / "model.safetensors").write_bytes(b"\x07" * 999) and None, "model.safetensors"),
    "header is no JSON": (
        lambda f: (f / "model.safetensors").write_bytes(struct.pack("<Q", 9) + b"{" * 99) and None, "header"
    ),
    "truncated file": (lambda f: cut(f, 0.5), r"tensor \S+ is truncated"),
    "last bytes missing": (lambda f: cut(f, 0.999999), r"tensor \S+ is truncated"),
    "missing tensor": (lambda f: edit_weights(f, lambda w: w.pop(Q).sum()), f"{Q} is missing"),
    "missing head of an untied model": (
        lambda f: edit_weights(f, lambda w: w.pop("lm_head.weight").sum()), "lm_head.weight is missing"
    ),
    "wrong shape": (replace(Q, lambda t: t[:-1]), f"{Q} has shape.*makes it"),
    "transposed": (replace("model.layers.0.mlp.up_proj.weight", lambda t: t.T), "up_proj.weight has shape"),
    "wrong dtype": (replace(NORM, lambda t: t.to(torch.int32)), f"{NORM} has dtype I32"),
    "8-bit float": (replace(NORM, lambda t: t.to(torch.float8_e4m3fn)), f"{NORM} has dtype F8"),
    "NaN": (poke(Q, float("nan")), f"{Q} holds NaN"),
    "infinity in a norm": (poke(NORM, float("inf")), f"{NORM} holds NaN or infinity"),
    "a tensor of another model": (
        lambda f: edit_weights(f, lambda w: w.update({"model.layers.9.mlp.gate": torch.ones(2)})), "layers.9"
    ),
    "a bias that config.json denies": (
        lambda f: edit_weights(f, lambda w: w.update({Q.replace("weight", "bias"): torch.ones(64)})),
        "q_proj.bias",
    ),
    "offsets that lie": (
        lambda f: edit_header(f, lambda h: h[NORM]["data_offsets"].__setitem__(1, 1 << 40)), NORM
    ),
    "entry without a shape": (lambda f: edit_header(f, lambda h: h[NORM].pop("shape") and None), NORM),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_o62_a_broken_checkpoint_is_named(tmp_path: Path, name: str) -> None:
    model = make_ctx_model(tmp_path / "model")
    damage, message = BROKEN[name]
    damage(model)
    with pytest.raises(StartupError, match=message) as caught:
        make_cpu_runner(model, dtype="auto", vocab_size=json_vocab(model))
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status in (2, 3)


def json_vocab(model: Path) -> int:
    try:
        return int(json.loads((model / "config.json").read_text())["vocab_size"])
    except (OSError, ValueError, TypeError):
        return 1


def test_o62_a_missing_shard_is_named(tmp_path: Path) -> None:
    model = make_ctx_model(tmp_path, num_shards=2)
    shards = sorted(model.glob("*.safetensors"))
    assert len(shards) == 2
    shards[1].unlink()
    with pytest.raises(ModelError, match=shards[1].name):
        make_cpu_runner(model)


@pytest.mark.parametrize(
    "index", [{}, {"weight_map": {}}, {"weight_map": {"a": "../model.safetensors"}}, {"weight_map": 3}, "no"]
)
def test_a_broken_index_is_named(tmp_path: Path, index: object) -> None:
    model = make_ctx_model(tmp_path)
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"index\.json"):
        make_cpu_runner(model)


def test_a_tensor_stored_twice_is_named(tmp_path: Path) -> None:
    model = make_ctx_model(tmp_path, num_shards=2)
    first, second = sorted(model.glob("*.safetensors"))
    weights = load_file(second)
    name, tensor = next(iter(load_file(first).items()))
    save_file(weights | {name: tensor}, second)
    with pytest.raises(ModelError, match=f"{name} is also in {first.name}"):
        make_cpu_runner(model)


@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize(("tied", "write_head"), [(True, True), (True, False), (False, True)])
def test_o62_heads_and_shards_load_as_in_transformers(
    tmp_path: Path, tied: bool, write_head: bool, num_shards: int
) -> None:
    model = make_ctx_model(tmp_path, tied=tied, write_lm_head=write_head, num_shards=num_shards)
    driver = Driver(make_cpu_runner(model))
    assert driver.generate([driver.add(PROMPT)], 8)[0] == reference_greedy(model, PROMPT, 8)


def test_dtype_auto_follows_the_checkpoint(tmp_path: Path) -> None:
    for place, (dtype, in_config) in enumerate([("bfloat16", True), ("float32", False), ("float16", False)]):
        model = make_ctx_model(tmp_path / str(place), dtype=dtype)
        if not in_config:
            edit_config(model, dtype=None, torch_dtype=None)
        runner = make_cpu_runner(model, dtype="auto")
        assert str(runner._model.embed.dtype) == f"torch.{dtype}"


def test_weights_are_converted_to_the_configured_dtype(tmp_path: Path) -> None:
    model = make_ctx_model(tmp_path, dtype="bfloat16")
    driver = Driver(make_cpu_runner(model, dtype="float32"))
    assert driver.generate([driver.add(PROMPT)], 8)[0] == reference_greedy(model, PROMPT, 8)


def test_dummy_weights_need_no_file_and_follow_the_seed(tmp_path: Path) -> None:
    model = make_ctx_model(tmp_path)
    (model / "model.safetensors").unlink()
    texts = []
    for seed in (0, 0, 1):
        driver = Driver(make_cpu_runner(model, load_format="dummy", seed=seed))
        texts.append(driver.generate([driver.add(PROMPT)], 8)[0])
    assert texts[0] == texts[1] != texts[2]
    assert np.ptp(texts[0]) > 0


def test_an_unknown_load_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="load_format"):
        make_cpu_runner(make_ctx_model(tmp_path), load_format="pt")
