"""Rounding to bfloat16 and the row order of q and k."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from octavo.frontend.gguf.safetensors_file import TensorInfo, write_safetensors_file
from octavo.frontend.gguf.weights import to_bfloat16, unpermute_rope


def test_rounding_to_bfloat16_equals_torch() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, size=200_000, dtype=np.uint32)
    ties = np.array(
        [0x3F808000, 0x3F818000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0x00000001, 0x80008000], np.uint32
    )
    values = np.concatenate([bits, ties]).view(np.float32)
    values = values[~np.isnan(values)]
    expected = torch.from_numpy(values.copy()).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(to_bfloat16(values), expected)


def test_not_a_number_stays_not_a_number() -> None:
    values = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001], np.uint32).view(np.float32)
    assert set(to_bfloat16(values).tolist()) == {0x7FC0}


def test_unpermuting_undoes_the_interleaving_of_halves() -> None:
    heads, head_dim, hidden = 3, 8, 5
    weight = np.arange(heads * head_dim * hidden, dtype=np.float32).reshape(heads * head_dim, hidden)
    halves = weight.reshape(heads, 2, head_dim // 2, hidden)
    interleaved = halves.swapaxes(1, 2).reshape(weight.shape)
    assert np.array_equal(unpermute_rope(interleaved, heads), weight)


def test_a_safetensors_file_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    first, second = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(5, dtype=np.float16)
    infos = [TensorInfo("first", "F32", (2, 3)), TensorInfo("second", "F16", (5,))]
    write_safetensors_file(path, infos, [first.tobytes(), second.tobytes()])
    loaded = load_file(path)
    assert torch.equal(loaded["first"], torch.from_numpy(first))
    assert torch.equal(loaded["second"], torch.from_numpy(second))


@pytest.mark.parametrize("contents", [[b"123"], [], [b"1234", b"5"]])
def test_contents_that_do_not_fit_the_header_are_refused(tmp_path: Path, contents: list[bytes]) -> None:
    with pytest.raises(ValueError):
        write_safetensors_file(tmp_path / "a", [TensorInfo("a", "F32", (1,))], contents)
