"""The CUDA runner with interpreted kernels beside the CPU runner: the same tokens however a step is cut."""

from pathlib import Path

import pytest
import torch

from octavo.protocol.columns import unpack_f32, unpack_i32
from octavo.protocol.errors import ProtocolError
from octavo.protocol.sampling import SamplingParams
from octavo.worker_proc.cuda.runner import NUM_SLOTS, CudaRunner

from ...support.cpu_runner import make_cpu_runner
from ...support.cuda_runner import make_interpreted_runner
from ...support.driver import Driver
from ...support.models import make_ctx_model

LENGTHS = [1, 17, 28]
NUM_TOKENS = 5
GREEDY = SamplingParams(temperature=0)

# The interpreter runs kernels a thousand times slower than a device does.
pytestmark = pytest.mark.timeout(600)


def prompts(lengths: list[int] = LENGTHS) -> list[list[int]]:
    return [[(7 * i + j * j + 3) % 256 for j in range(n)] for i, n in enumerate(lengths)]


@pytest.fixture(scope="module")
def ctx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ctx_model(tmp_path_factory.mktemp("ctx"))


@pytest.fixture(scope="module")
def expected(ctx: Path) -> list[list[int]]:
    driver = Driver(make_cpu_runner(ctx))
    return driver.generate([driver.add(prompt) for prompt in prompts()], NUM_TOKENS)


@pytest.fixture(scope="module")
def loaded(ctx: Path) -> CudaRunner:
    return make_interpreted_runner(ctx)


@pytest.fixture
def driver(loaded: CudaRunner) -> Driver:
    loaded.forget()
    return Driver(loaded)


@pytest.mark.parametrize("chunk", [1 << 30, 7])
def test_tokens_are_those_of_the_cpu(driver: Driver, expected: list[list[int]], chunk: int) -> None:
    assert driver.generate([driver.add(prompt) for prompt in prompts()], NUM_TOKENS, chunk) == expected


def test_chunks_beside_decodes_draw_nothing_early(driver: Driver, expected: list[list[int]]) -> None:
    running = driver.add(prompts()[0])
    driver.step()
    late = driver.add(prompts()[2])
    assert driver.step(10).rows.tolist() == [running.row]
    assert driver.step(10).rows.tolist() == [running.row]
    assert driver.step(10).rows.tolist() == [running.row, late.row]
    assert driver.generate([running, late], NUM_TOKENS) == [expected[0], expected[2]]


def test_a_shared_prefix_gives_the_tokens_of_a_miss(driver: Driver, expected: list[list[int]]) -> None:
    first = driver.add(prompts()[2])
    driver.step()
    second = driver.add(prompts()[2], shared=first, num_shared=16)
    assert driver.generate([second], NUM_TOKENS)[0] == expected[2]


def test_a_row_added_again_goes_on_as_if_never_released(driver: Driver) -> None:
    params = SamplingParams(temperature=1.0, frequency_penalty=0.5, repetition_penalty=1.2)
    whole = driver.generate([driver.add(prompts()[1], params, seed=9)], NUM_TOKENS)[0]
    again = driver.add(prompts()[1], params, seed=9, output=whole[:2], row=5)
    assert driver.generate([again], NUM_TOKENS)[0] == whole


def test_rules_and_penalties_are_those_of_the_cpu(
    ctx: Path, driver: Driver, expected: list[list[int]]
) -> None:
    strict = SamplingParams(
        temperature=0,
        repetition_penalty=2.0,
        presence_penalty=0.5,
        logit_bias={expected[1][0]: -100.0, 11: 3.0},
        stop_token_ids=[expected[1][1]],
        min_tokens=4,
    )
    narrow = SamplingParams(temperature=0, allowed_token_ids=[5, 9, 200])
    outputs = []
    for some in (driver, Driver(make_cpu_runner(ctx))):
        words = [[expected[1][2]], [expected[1][1], expected[1][2]]]
        rows = [
            some.add(prompts()[1], strict, bad_words=words),
            some.add(prompts()[1], narrow),
            some.add(prompts()[1]),
        ]
        outputs.append(some.generate(rows, NUM_TOKENS, chunk=14))
    assert outputs[0] == outputs[1]
    assert outputs[0][2] == expected[1]


def test_a_row_inherits_nothing(driver: Driver, expected: list[list[int]]) -> None:
    strict = SamplingParams(
        temperature=1.5, top_k=5, top_p=0.5, min_p=0.1, repetition_penalty=2.0, min_tokens=2, logprobs=3,
        logit_bias={expected[1][0]: -100.0},
    )  # fmt: skip
    driver.generate([driver.add(prompts()[1], strict, bad_words=[[3, 4]], row=3)], 2)
    assert driver.generate([driver.add(prompts()[1], row=3)], NUM_TOKENS)[0] == expected[1]


def test_a_draw_depends_on_seed_choice_and_position_alone(driver: Driver) -> None:
    params = SamplingParams(temperature=1.0, top_p=0.9)
    alone = driver.generate([driver.add(prompts()[1], params, seed=7, choice=1)], 3)[0]
    others = [driver.add(prompts()[1], params, seed=7, choice=choice) for choice in (0, 1)]
    together = driver.generate(others, 3, chunk=9)
    assert together[1] == alone != together[0]


def test_plans_go_out_before_results_come_back(driver: Driver, expected: list[list[int]]) -> None:
    rows = [driver.add(prompt) for prompt in prompts()]
    runner, tokens = driver.runner, []
    for _ in range(NUM_TOKENS):
        runner.submit(driver.plan())
        for row in rows:
            row.output.append(-1)  # not known yet
        if len(tokens) < NUM_TOKENS - 2:
            runner.submit(driver.plan())
            for row in rows:
                row.output.append(-1)
        while (output := runner.collect()) is not None:
            tokens.append(output.tokens.tolist())
        if len(tokens) >= NUM_TOKENS:
            break
    assert [list(column) for column in zip(*tokens, strict=True)] == expected


def test_more_plans_than_buffers_are_refused(driver: Driver) -> None:
    for _ in range(NUM_SLOTS):
        driver.runner.submit(driver.plan(rows=[]))
    with pytest.raises(ProtocolError, match="in flight"):
        driver.runner.submit(driver.plan(rows=[]))
    for _ in range(NUM_SLOTS):
        assert driver.runner.collect() is not None


def test_logprobs_are_of_the_raw_logits(ctx: Path, driver: Driver) -> None:
    params = SamplingParams(temperature=0.3, top_k=1, repetition_penalty=1.5, logprobs=4)
    columns = []
    for some in (driver, Driver(make_cpu_runner(ctx))):
        some.add(prompts()[0])
        some.add(prompts()[2], params)
        columns.append(some.step().logprobs)
    found, truth = columns
    assert found is not None and truth is not None
    assert unpack_i32(found.counts).tolist() == [0, 5]
    assert (found.tokens, found.ranks) == (truth.tokens, truth.ranks)
    assert unpack_f32(found.values).tolist() == pytest.approx(unpack_f32(truth.values).tolist(), abs=1e-4)


def test_a_row_whose_logits_are_nan_fails_alone(driver: Driver, expected: list[list[int]]) -> None:
    poisoned, healthy = driver.add(prompts()[2]), driver.add(prompts()[1])
    driver.step()
    caches = driver.runner.computation._parts.attention._caches
    with torch.inference_mode():
        caches[0][:, poisoned.blocks[0][0], 3] = float("nan")
    driver.step()
    assert "NaN" in poisoned.errors[0]
    poisoned.output.append(0)
    driver.step()  # a plan sent before the error was known still fits the row
    driver.release(poisoned)
    # The blocks are handed out again; the heir does not see the NaN behind its own tokens.
    driver.free[0].sort()
    heir = driver.add(prompts()[0])
    assert driver.generate([healthy, heir], NUM_TOKENS) == [expected[1], expected[0]]


def test_a_row_that_cannot_be_served_fails_alone(driver: Driver, expected: list[list[int]]) -> None:
    failing = driver.add(prompts()[0], GREEDY, bad_words=[list(range(40))])
    healthy = driver.add(prompts()[1])
    driver.step()
    assert "banned word" in failing.errors[0]
    driver.release(failing)
    assert driver.generate([healthy], NUM_TOKENS)[0] == expected[1]


def test_an_empty_plan_has_an_empty_result(driver: Driver, expected: list[list[int]]) -> None:
    row = driver.add(prompts()[1])
    assert driver.step(rows=[]).rows.tolist() == []
    assert driver.generate([row], NUM_TOKENS)[0] == expected[1]


def test_a_plan_over_the_budget_is_refused(driver: Driver) -> None:
    for prompt in (prompts()[1], prompts()[2], prompts()[2]):
        driver.add(prompt)
    with pytest.raises(ProtocolError, match="73 tokens, more than 48"):
        driver.step()
