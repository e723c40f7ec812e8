"""Guided rows of a CPU worker: what they draw obeys their grammar, and nobody else notices."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from octavo.protocol.sampling import SamplingParams
from octavo.protocol.structured import StructuredOutputsParams
from octavo.worker_proc.cpu.runner import CpuRunner

from ...support.cpu_runner import make_cpu_runner
from ...support.driver import Choice, Driver
from ...support.models import make_ctx_model

PROMPT = [5, 17, 40, 9]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": -99, "maximum": 99}, "b": {"enum": ["x", "yy"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


class Guided:
    """A runner of a small random model, and its tokenizer."""

    def __init__(self, folder: Path) -> None:
        make_ctx_model(folder)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.eos = self.tokenizer.token_to_id("<|im_end|>")
        self.runner: CpuRunner = make_cpu_runner(
            folder, tokenizer_path=str(folder / "tokenizer.json"), eos_token_ids=(self.eos,)
        )
        self.driver = Driver(self.runner)

    def add(self, *, seed: int = 0, output: list[int] | None = None, **fields: object) -> Choice:
        params = SamplingParams(max_tokens=None, **fields)  # type: ignore[arg-type]
        return self.driver.add(PROMPT, params, seed=seed, output=output or [])

    def run(self, *choices: Choice, most: int = 200) -> list[str]:
        """The texts of the choices, without the end token."""
        for _ in range(most):
            open_ones = [one for one in choices if self.eos not in one.output and not one.errors]
            if not open_ones:
                break
            self.driver.step(rows=open_ones)
        for one in choices:
            self.driver.release(one)
        return [self.tokenizer.decode([t for t in one.output if t != self.eos]) for one in choices]


@pytest.fixture(scope="module")
def guided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guided]:
    yield Guided(tmp_path_factory.mktemp("ctx"))


def asking(**fields: object) -> StructuredOutputsParams:
    return StructuredOutputsParams(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_each_kind_is_obeyed_side_by_side(guided: Guided, temperature: float) -> None:
    wanted = [
        asking(regex=r"[a-c]{3,9}/\d+\.?"),
        asking(choice=["the cat", "the dog", "é"]),
        asking(json=SCHEMA),
        asking(grammar='start: "<" (start | /[0-9]{1,3}/) ">"'),
    ]
    rows = [
        guided.add(structured_outputs=one, temperature=temperature, seed=n) for n, one in enumerate(wanted)
    ]
    texts = guided.run(*rows)
    assert [row.errors for row in rows] == [[]] * 4
    assert re.match(r"[a-c]{3,9}/\d+", texts[0])
    assert texts[1] in ("the cat", "the dog", "é")
    if guided.eos in rows[2].output:
        value = json.loads(texts[2])
        assert -99 <= value["a"] <= 99 and value["b"] in ("x", "yy") and len(value) == 2
    assert re.match(r"<+", texts[3])


def test_a_row_beside_guided_ones_draws_what_it_draws_alone(guided: Guided) -> None:
    alone = guided.add(temperature=1.0, seed=3, logprobs=2)
    guided.driver.generate([alone], 12)
    beside = guided.add(temperature=1.0, seed=3, logprobs=2)
    others = [guided.add(structured_outputs=asking(regex="[ab]{50}"), seed=n) for n in range(3)]
    guided.driver.generate([beside, *others], 12)
    assert beside.output == alone.output


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_comes_back_goes_on_where_it_was(guided: Guided, temperature: float) -> None:
    """After a preemption or a restart the output so far is read into a new matcher."""
    fields = {"structured_outputs": asking(json=SCHEMA), "temperature": temperature, "seed": 11}
    (whole,) = [guided.add(**fields)]
    guided.run(whole)
    for cut in (1, 4, len(whole.output) - 1):
        again = guided.add(output=whole.output[:cut], **fields)
        guided.run(again)
        assert again.output == whole.output


def test_a_row_keeps_nothing_of_the_guided_row_before_it(guided: Guided) -> None:
    plain = guided.driver.add(PROMPT, SamplingParams(temperature=0), row=7)
    guided.driver.generate([plain], 8)
    held = SamplingParams(temperature=0, structured_outputs=asking(choice=["the cat"]))
    guided.driver.generate([guided.driver.add(PROMPT, held, row=7)], 2)
    after = guided.driver.add(PROMPT, SamplingParams(temperature=0), row=7)
    guided.driver.generate([after], 8)
    assert after.output == plain.output


def test_the_end_is_drawn_whatever_else_is_ruled_out(guided: Guided) -> None:
    """min_tokens, a bias or allowed ids cannot leave a finished grammar without any token."""
    token = guided.tokenizer.token_to_id("a")
    for fields in ({"min_tokens": 9}, {"logit_bias": {guided.eos: -100.0}}, {"allowed_token_ids": [token]}):
        row = guided.add(structured_outputs=asking(choice=["a"]), **fields)
        guided.run(row)
        assert row.errors == []
        assert row.output == [token, guided.eos]


def test_rules_that_leave_nothing_fail_the_row_alone(guided: Guided) -> None:
    never = guided.add(structured_outputs=asking(choice=["a"]), allowed_token_ids=[guided.eos])
    other = guided.add(structured_outputs=asking(choice=["a"]))
    assert guided.run(never, other)[1] == "a"
    assert "ruled out" in never.errors[0]


def test_a_grammar_that_cannot_be_compiled_fails_its_row_alone(guided: Guided) -> None:
    bad = guided.add(structured_outputs=asking(regex="("))
    good = guided.add(structured_outputs=asking(choice=["a"]))
    assert guided.run(bad, good)[1] == "a"
    assert "cannot be compiled" in bad.errors[0]


def test_output_that_does_not_obey_fails_its_row_alone(guided: Guided) -> None:
    row = guided.add(structured_outputs=asking(choice=["abc"]), output=[guided.tokenizer.token_to_id("z")])
    guided.run(row)
    assert "does not obey" in row.errors[0]


def test_logprobs_are_those_of_the_model(guided: Guided) -> None:
    row = guided.add(structured_outputs=asking(choice=["a"]), logprobs=5, temperature=0)
    guided.driver.step(rows=[row])
    output = guided.driver.last
    assert output is not None and output.logprobs is not None
    free = guided.add(logprobs=5, temperature=0)
    guided.driver.step(rows=[free])
    unguided = guided.driver.last
    assert unguided is not None and unguided.logprobs is not None
    tops = [np.frombuffer(one.logprobs.values, np.float32)[1:] for one in (output, unguided)]
    np.testing.assert_allclose(*tops, atol=1e-5)
    guided.driver.release(row)
    guided.driver.release(free)


def test_a_worker_without_tokenizer_fails_the_row_alone(tmp_path: Path) -> None:
    make_ctx_model(tmp_path)
    driver = Driver(make_cpu_runner(tmp_path, eos_token_ids=(0,)))
    row = driver.add(PROMPT, SamplingParams(structured_outputs=asking(regex="a")))
    plain = driver.add(PROMPT)
    driver.step()
    assert "tokenizer" in row.errors[0]
    assert len(plain.output) == 1
