"""Every architecture that runs on CUDA beside transformers, in float32: logits, and greedy tokens."""

from pathlib import Path

import pytest
import torch

from octavo.worker_proc.cuda.runner import CudaRunner

from ...support.architectures import MODELS, SHAPES, config_of, prompt_of
from ...support.cuda_runner import make_cuda_runner, make_interpreted_runner, watched_logits
from ...support.driver import Driver
from ...support.random_models import forward, make_random_model

TOLERANCE = 1e-4
DEVICE_MODELS = [name for name in MODELS if "num_experts_per_tok" not in MODELS[name]]
# What differs from Llama in the kernels: windows beside full layers, soft caps, norms, partial rotation.
INTERPRETED: list[object] = ["gemma2"]
INTERPRETED += [pytest.param(name, marks=pytest.mark.full) for name in ("gemma3", "phi3-window-partial")]
PROMPT, OUTPUT = 50, 30
BLOCK_SIZES = {"3x24": 16, "5x16": 64, "6x32": 64}

pytestmark = pytest.mark.timeout(600)


def check_logits(
    folder: Path, runner: CudaRunner, model: object, *, num_prompt: int, num_output: int
) -> None:
    """Logits in chunks and then token by token, and with them the greedy tokens."""
    driver, prompt = Driver(runner), prompt_of(num_prompt)
    with watched_logits(runner) as seen:
        output = driver.generate([driver.add(prompt)], num_output, chunk=16)[0]
    truth = forward(model, prompt + output)[len(prompt) - 1 : -1]
    found = torch.stack([logits[0] for logits in seen]).float().cpu()
    error = float((found - truth).norm() / truth.norm())
    print(f"{folder.name}: relative error {error:.1e}, allowed {TOLERANCE:.0e}")
    assert error < TOLERANCE
    assert output == truth.argmax(-1).tolist()


# A sigmoid of the interpreter is 1 / (1 + exp(-x)) in numpy, which is 0 then, as it should be.
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
@pytest.mark.parametrize("name", INTERPRETED)
def test_interpreted_logits_equal_transformers(tmp_path: Path, name: str) -> None:
    model = make_random_model(tmp_path, config_of(name, "3x24"))
    runner = make_interpreted_runner(tmp_path, max_model_len=64, max_num_seqs=1, max_num_batched_tokens=16)
    check_logits(tmp_path, runner, model, num_prompt=27, num_output=2)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", DEVICE_MODELS)
def test_logits_equal_transformers(tmp_path: Path, name: str, shape: str) -> None:
    model = make_random_model(tmp_path, config_of(name, shape))
    settings = {"max_model_len": 128, "max_num_seqs": 2, "block_size": BLOCK_SIZES[shape]}
    runner = make_cuda_runner(tmp_path, enforce_eager=True, **settings)
    check_logits(tmp_path, runner, model, num_prompt=PROMPT, num_output=OUTPUT)


@pytest.mark.gpu
@pytest.mark.parametrize("name", DEVICE_MODELS)
def test_tokens_do_not_depend_on_how_the_work_is_cut(tmp_path: Path, name: str) -> None:
    """200 tokens of rows of several lengths: together, in chunks, behind a prefix, taken up again."""
    make_random_model(tmp_path, config_of(name, "6x32"))
    driver = Driver(make_cuda_runner(tmp_path, max_num_batched_tokens=256, max_model_len=384, num_blocks=400))
    lengths = [1, 15, 16, 33, 70]
    whole = driver.generate([driver.add(prompt_of(length)) for length in lengths], 200)
    cut = driver.generate([driver.add(prompt_of(length)) for length in lengths], 200, chunk=16)
    assert cut == whole
    first = driver.add(prompt_of(70))
    driver.step()
    behind = driver.add(prompt_of(70), shared=first, num_shared=48)
    assert driver.generate([behind], 200)[0] == whole[-1]
    again = driver.add(prompt_of(33), output=whole[3][:25])
    assert driver.generate([again], 200)[0] == whole[3]
