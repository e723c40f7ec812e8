"""Log-probabilities of prompt tokens, against one forward pass of transformers."""

from pathlib import Path

import numpy as np
import pytest
import torch

from octavo.protocol.columns import unpack_f32, unpack_i32
from octavo.protocol.sampling import SamplingParams
from octavo.protocol.steps import RowPromptLogprobs

from ..support.cpu_runner import make_cpu_runner, reference_logits
from ..support.driver import Choice, Driver
from ..support.models import make_ctx_model

PROMPT = np.random.default_rng(0).integers(3, 250, 300).tolist()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ctx_model(tmp_path_factory.mktemp("ctx"))


def read(driver: Driver, rows: list[Choice], chunk: int) -> dict[int, list[RowPromptLogprobs]]:
    """The parts that each row reports until all have drawn a token."""
    parts: dict[int, list[RowPromptLogprobs]] = {row.row: [] for row in rows}
    while pending := [row for row in rows if not row.output]:
        for part in driver.step(chunk, pending).prompt_logprobs:
            parts[part.row].append(part)
    return parts


@pytest.mark.parametrize("chunk", [7, 1000])
def test_they_equal_one_forward_pass_in_any_chunks(model: Path, chunk: int) -> None:
    driver = Driver(make_cpu_runner(model))
    prompts = [PROMPT, PROMPT[:2], PROMPT[5:6], PROMPT[3:40]]
    asked = [3, 0, 2, 20]
    rows = [
        driver.add(prompt, SamplingParams(temperature=0, prompt_logprobs=k))
        for prompt, k in zip(prompts, asked, strict=True)
    ]
    others = [driver.add(PROMPT[9:30]) for _ in range(2)]
    told = read(driver, [*rows, *others], chunk)
    for row, prompt, k in zip(rows, prompts, asked, strict=True):
        expected = reference_logits(model, prompt).log_softmax(-1)
        positions = [p for part in told[row.row] for p in range(part.start, part.start + _size(part))]
        assert positions == list(range(1, len(prompt)))
        if len(prompt) == 1:
            continue
        ids = np.concatenate([unpack_i32(part.logprobs.tokens) for part in told[row.row]]).reshape(-1, k + 1)
        values = np.concatenate([unpack_f32(part.logprobs.values) for part in told[row.row]]).reshape(
            -1, k + 1
        )
        ranks = np.concatenate([unpack_i32(part.logprobs.ranks) for part in told[row.row]])
        assert ids[:, 0].tolist() == prompt[1:]
        chosen = expected[:-1].gather(1, torch.tensor(prompt[1:]).unsqueeze(1))
        np.testing.assert_allclose(values[:, 0], chosen.squeeze(1).numpy(), atol=1e-3)
        np.testing.assert_allclose(values[:, 1:], expected[:-1].topk(k).values.numpy(), atol=1e-3)
        higher = (expected[:-1] > chosen + 1e-4).sum(-1).numpy()
        assert (ranks >= higher + 1).all() and (ranks <= higher + 3).all()
    assert all(told[row.row] == [] for row in others)


def test_a_row_keeps_nothing_of_the_one_before_it(model: Path) -> None:
    driver = Driver(make_cpu_runner(model))
    first = driver.add(PROMPT[:9], SamplingParams(prompt_logprobs=1), row=3)
    assert read(driver, [first], 100)[3]
    driver.release(first)
    assert read(driver, [driver.add(PROMPT[:9], row=3)], 100)[3] == []


def _size(part: RowPromptLogprobs) -> int:
    return len(part.logprobs.counts) // 4
