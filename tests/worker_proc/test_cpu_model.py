"""The CPU runner beside transformers in float32: the same greedy tokens however a step is cut."""

import json
from pathlib import Path

import pytest

from octavo.protocol.columns import unpack_f32, unpack_i32
from octavo.protocol.errors import OutOfMemoryError
from octavo.protocol.sampling import SamplingParams

from ..support.cpu_runner import make_cpu_runner, reference_greedy, reference_logits
from ..support.driver import Driver
from ..support.models import make_ctx_model

LENGTHS = [1, 2, 15, 16, 17, 32, 33, 100, 240]
NUM_TOKENS = 24


@pytest.fixture(scope="module")
def ctx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ctx_model(tmp_path_factory.mktemp("ctx"))


def prompts(lengths: list[int] = LENGTHS) -> list[list[int]]:
    return [[(7 * i + j * j + 3) % 256 for j in range(n)] for i, n in enumerate(lengths)]


@pytest.fixture(scope="module")
def expected(ctx: Path) -> list[list[int]]:
    return [reference_greedy(ctx, prompt, NUM_TOKENS) for prompt in prompts()]


@pytest.mark.parametrize("chunk", [1 << 30, 16, 1])
@pytest.mark.parametrize("block_size", [16, 64])
def test_greedy_tokens_equal_transformers(
    ctx: Path, expected: list[list[int]], block_size: int, chunk: int
) -> None:
    driver = Driver(make_cpu_runner(ctx, block_size=block_size))
    assert driver.generate([driver.add(prompt) for prompt in prompts()], NUM_TOKENS, chunk) == expected


def test_o43_chunks_beside_a_decode_draw_nothing_early(ctx: Path, expected: list[list[int]]) -> None:
    driver = Driver(make_cpu_runner(ctx))
    running = driver.add(prompts()[0])
    driver.step()
    late = driver.add(prompts()[6])
    assert driver.step(16).rows.tolist() == [running.row]
    assert driver.step(16).rows.tolist() == [running.row]
    assert driver.step(16).rows.tolist() == [running.row, late.row]
    assert driver.generate([running, late], NUM_TOKENS) == [expected[0], expected[6]]


@pytest.mark.parametrize("num_shared", [16, 96])
def test_o42_a_shared_prefix_gives_the_tokens_of_a_miss(
    ctx: Path, expected: list[list[int]], num_shared: int
) -> None:
    driver = Driver(make_cpu_runner(ctx))
    first = driver.add(prompts()[7])
    driver.step()
    second = driver.add(prompts()[7], shared=first, num_shared=num_shared)
    assert driver.generate([second], NUM_TOKENS)[0] == expected[7]


def test_o40_a_row_added_again_goes_on_as_if_never_released(ctx: Path) -> None:
    params = SamplingParams(temperature=0, frequency_penalty=0.5, repetition_penalty=1.2)
    for sampling in (params, SamplingParams(temperature=1.0)):
        driver = Driver(make_cpu_runner(ctx))
        whole = driver.generate([driver.add(prompts()[7], sampling, seed=9)], NUM_TOKENS)[0]
        again = driver.add(prompts()[7], sampling, seed=9, output=whole[:10], row=5)
        assert driver.generate([again], NUM_TOKENS)[0] == whole


def test_o46_a_row_inherits_nothing(ctx: Path, expected: list[list[int]]) -> None:
    driver = Driver(make_cpu_runner(ctx))
    token = expected[4][0]
    strict = SamplingParams(
        temperature=1.5,
        top_k=5,
        top_p=0.5,
        min_p=0.1,
        repetition_penalty=2.0,
        logit_bias={token: -100.0},
        stop_token_ids=[expected[4][1]],
        max_tokens=64,
        min_tokens=60,
        logprobs=3,
    )
    for row in (3, 3, 4):
        other = driver.add(prompts()[4], strict, bad_words=[[expected[4][2]]], row=row)
        plain = driver.add(prompts()[4], row=3 if row == 4 else 7)
        assert driver.generate([other, plain], NUM_TOKENS)[1] == expected[4]


def test_forgotten_rows_can_be_taken_again(ctx: Path, expected: list[list[int]]) -> None:
    driver = Driver(make_cpu_runner(ctx))
    driver.add(prompts()[5], SamplingParams(temperature=0, repetition_penalty=2.0))
    driver.step()
    driver.runner.forget()
    driver = Driver(driver.runner)
    assert driver.generate([driver.add(prompts()[5])], NUM_TOKENS)[0] == expected[5]


def test_logprobs_are_of_the_raw_logits(ctx: Path) -> None:
    driver = Driver(make_cpu_runner(ctx))
    prompt = prompts()[7]
    driver.add(prompts()[2])
    params = SamplingParams(temperature=0.3, top_k=1, repetition_penalty=1.5, logprobs=4)
    choice = driver.add(prompt, params)
    columns = driver.step().logprobs
    assert columns is not None
    assert unpack_i32(columns.counts).tolist() == [0, 5]
    truth = reference_logits(ctx, prompt)[-1].log_softmax(-1)
    tokens = unpack_i32(columns.tokens).tolist()
    assert tokens[0] == choice.output[0]
    assert tokens[1:] == truth.topk(4).indices.tolist()
    assert unpack_f32(columns.values).tolist() == pytest.approx(truth[tokens].tolist(), abs=1e-3)
    assert unpack_i32(columns.ranks)[1] == int((truth > truth[tokens[0]]).sum()) + 1


def test_a_row_whose_logits_are_nan_fails_alone(ctx: Path, expected: list[list[int]]) -> None:
    runner = make_cpu_runner(ctx)
    driver = Driver(runner)
    poisoned, healthy = driver.add(prompts()[7]), driver.add(prompts()[4])
    driver.step()
    runner._attention._caches[0][poisoned.blocks[0][0] * 16 + 14] = float("nan")
    driver.step()
    assert poisoned.errors
    assert "NaN" in poisoned.errors[0]
    poisoned.output.append(0)
    driver.step()  # a plan sent before the error was known still fits the row
    driver.release(poisoned)
    # The blocks are handed out again; the heir does not see the NaN behind its own tokens.
    driver.free[0].sort()
    heir = driver.add(prompts()[1])
    assert driver.generate([healthy, heir], NUM_TOKENS) == [expected[4], expected[1]]


def test_the_cache_too_small_for_a_block_says_what_to_change(ctx: Path) -> None:
    with pytest.raises(OutOfMemoryError, match="kv-cache-memory-bytes"):
        make_cpu_runner(ctx, num_blocks=0, kv_cache_memory_bytes=1000)
    assert make_cpu_runner(ctx, num_blocks=0, kv_cache_memory_bytes=1 << 20).kv_groups[0].num_blocks == 128


BASE = {"max_position_embeddings": 2048}
ROPES = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 64},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}


@pytest.mark.parametrize("kind", ROPES)
@pytest.mark.parametrize("spelling", ["v4-type", "v4-rope_type", "v5"])
def test_o62_rope_in_every_spelling(tmp_path: Path, kind: str, spelling: str) -> None:
    options = ROPES[kind]
    if spelling == "v5":
        config = {"rope_parameters": {"rope_type": kind, "rope_theta": 5e5, **options}, "rope_theta": None}
    else:
        key = "type" if spelling == "v4-type" else "rope_type"
        config = {"rope_theta": 5e5, "rope_parameters": None}
        config |= {"rope_scaling": {key: kind, **options}} if options else {}
    model = make_ctx_model(tmp_path, config=BASE | config)
    prompt = prompts([120])[0]
    driver = Driver(make_cpu_runner(model))
    assert driver.generate([driver.add(prompt)], 8)[0] == reference_greedy(model, prompt, 8)
    assert json.loads((model / "config.json").read_text()).get("rope_theta", 0) in (0, 5e5)


def test_dynamic_rope_behind_the_trained_context(tmp_path: Path) -> None:
    rope = {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}
    model = make_ctx_model(tmp_path, config={"max_position_embeddings": 64} | rope)
    prompt = prompts([60])[0]
    # transformers stretches with every token it decodes; a prompt that is cut anywhere must give the same.
    expected = reference_greedy(model, prompt, 40)
    for chunk in (1 << 30, 16):
        driver = Driver(make_cpu_runner(model))
        assert driver.generate([driver.add(prompt)], 40, chunk)[0] == expected


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bit_stays_near_float32(ctx: Path, dtype: str) -> None:
    runner = make_cpu_runner(ctx, dtype=dtype)
    driver = Driver(runner)
    prompt = prompts([100])[0]
    driver.add(prompt, SamplingParams(temperature=0, logprobs=0))
    driver.step()
    assert driver.last is not None and driver.last.logprobs is not None
    token = unpack_i32(driver.last.logprobs.tokens)[0]
    truth = reference_logits(ctx, prompt)[-1].log_softmax(-1)[token]
    assert unpack_f32(driver.last.logprobs.values)[0] == pytest.approx(float(truth), abs=0.35)
