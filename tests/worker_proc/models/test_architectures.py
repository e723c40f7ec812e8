"""Every architecture with random weights beside transformers, in float32: logits, and greedy tokens."""

from pathlib import Path

import pytest
import torch

from octavo.worker_proc.cpu.runner import CpuRunner

from ...support.architectures import MODELS, SHAPES, config_of, prompt_of
from ...support.cpu_runner import make_cpu_runner
from ...support.driver import Choice, Driver
from ...support.random_models import forward, make_random_model


def keep_logits(runner: CpuRunner) -> list[torch.Tensor]:
    """What the model gives from now on: [rows that sample, vocab] for each step."""
    kept: list[torch.Tensor] = []
    original = runner._model.logits

    def logits(hidden: torch.Tensor) -> torch.Tensor:
        kept.append(original(hidden).clone())
        return kept[-1]

    runner._model.logits = logits  # type: ignore[method-assign]
    return kept


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", MODELS)
def test_logits_equal_transformers(tmp_path: Path, name: str, shape: str) -> None:
    model = make_random_model(tmp_path, config_of(name, shape))
    runner = make_cpu_runner(tmp_path, max_model_len=128, num_blocks=24)
    driver, logits, prompt = Driver(runner), keep_logits(runner), prompt_of(50)
    output = driver.generate([driver.add(prompt)], 30, chunk=16)[0]
    truth = forward(model, prompt + output)[len(prompt) - 1 : -1]
    found = torch.cat(logits)
    assert float((found - truth).norm() / truth.norm()) < 1e-4
    assert output == truth.argmax(-1).tolist()


@pytest.mark.parametrize("name", MODELS)
def test_tokens_do_not_depend_on_how_the_work_is_cut(tmp_path: Path, name: str) -> None:
    """Rows of several lengths together, in chunks, behind a cached prefix, and taken up again."""
    make_random_model(tmp_path, config_of(name, "6x32"))
    driver = Driver(make_cpu_runner(tmp_path, max_model_len=128))
    lengths = [1, 15, 16, 33, 70]

    def add_all() -> list[Choice]:
        return [driver.add(prompt_of(length)) for length in lengths]

    whole = driver.generate(add_all(), 40)
    assert driver.generate(add_all(), 40, chunk=16) == whole
    first = driver.add(prompt_of(70))
    driver.step()
    behind = driver.add(prompt_of(70), shared=first, num_shared=48)
    assert driver.generate([behind], 40)[0] == whole[-1]
    again = driver.add(prompt_of(33), output=whole[3][:25])
    assert driver.generate([again], 40)[0] == whole[3]


@pytest.mark.full
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", MODELS)
def test_200_tokens_equal_transformers_however_the_work_is_cut(tmp_path: Path, name: str, shape: str) -> None:
    """In chunks beside others, behind a cached prefix, and taken up again in the middle."""
    model = make_random_model(tmp_path, config_of(name, shape))
    driver, prompt = Driver(make_cpu_runner(tmp_path, max_model_len=512)), prompt_of(70)
    chunked, *_ = driver.generate([driver.add(prompt_of(length)) for length in (70, 1, 33)], 200, chunk=16)
    assert chunked == forward(model, prompt + chunked)[len(prompt) - 1 : -1].argmax(-1).tolist()
    first = driver.add(prompt)
    driver.step()
    assert driver.generate([driver.add(prompt, shared=first, num_shared=64)], 200)[0] == chunked
    assert driver.generate([driver.add(prompt, output=chunked[:101])], 200)[0] == chunked


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16_stays_near_float32(tmp_path: Path, name: str) -> None:
    model = make_random_model(tmp_path, config_of(name, "6x32"), spread=0.1)
    runner = make_cpu_runner(tmp_path, max_model_len=128, dtype="bfloat16")
    driver, logits, prompt = Driver(runner), keep_logits(runner), prompt_of(50)
    driver.generate([driver.add(prompt)], 1, chunk=16)
    truth = forward(model, prompt)[-1]
    assert float((logits[0][0].float() - truth).norm() / truth.norm()) < 0.1
