"""The simulated device: its text depends on every block, and on nothing else."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.protocol.config import WorkerConfig
from octavo.protocol.errors import ModelError, UsageError
from octavo.protocol.sampling import SamplingParams
from octavo.protocol.structured import StructuredOutputsParams
from octavo.worker_proc.phases import StartPhases
from octavo.worker_proc.sim.load import load_sim
from octavo.worker_proc.sim.options import parse_options
from octavo.worker_proc.sim.runner import SimRunner, SimulatedFaultError

from ..support.driver import Driver

VOCAB = 1000
PROMPT = list(range(40, 90))


def make_runner(sim: str = "", **fields: object) -> SimRunner:
    config = dict(
        run_dir="", scheduler_endpoint="", lifeline_fd=-1, parent_pid=0, device="sim", model_path="",
        vocab_size=VOCAB, eos_token_ids=(), max_model_len=512, max_num_seqs=8, num_blocks=64, sim=sim,
    )  # fmt: skip
    return load_sim(WorkerConfig(**(config | fields)), StartPhases("start"))  # type: ignore[arg-type]


def alone(
    prompt: list[int], num: int, sim: str = "", params: SamplingParams | None = None, **kw: int
) -> list[int]:
    driver = Driver(make_runner(sim))
    return driver.generate([driver.add(prompt, params, **kw)], num)[0]


GROUPS = ["", "groups=2,window=20"]


@pytest.mark.parametrize("sim", GROUPS)
@pytest.mark.parametrize("chunk", [1, 7, 16, 100])
def test_chunks_change_nothing(sim: str, chunk: int) -> None:
    driver = Driver(make_runner(sim))
    assert driver.generate([driver.add(PROMPT)], 30, chunk)[0] == alone(PROMPT, 30, sim)


@pytest.mark.parametrize("sim", GROUPS)
def test_neighbours_change_nothing(sim: str) -> None:
    driver = Driver(make_runner(sim))
    prompts = [PROMPT, PROMPT[1:], [5], PROMPT[::-1]]
    outputs = driver.generate([driver.add(prompt) for prompt in prompts], 20)
    assert outputs == [alone(prompt, 20, sim) for prompt in prompts]
    assert len({tuple(output) for output in outputs}) == 4


@pytest.mark.parametrize("sim", GROUPS)
def test_a_shared_prefix_gives_the_same_text(sim: str) -> None:
    driver = Driver(make_runner(sim))
    first = driver.add(PROMPT)
    driver.step()
    second = driver.add([*PROMPT[:48], 7], shared=first, num_shared=48)
    driver.generate([second], 10)
    assert second.output == alone([*PROMPT[:48], 7], 10, sim)


def test_a_restored_row_goes_on_where_it_was() -> None:
    whole = alone(PROMPT, 20)
    driver = Driver(make_runner())
    assert driver.generate([driver.add(PROMPT, output=whole[:8])], 20)[0] == whole


@pytest.mark.parametrize(("sim", "group"), [(GROUPS[0], 0), (GROUPS[1], 0), (GROUPS[1], 1)])
def test_a_wrong_block_changes_the_text(sim: str, group: int) -> None:
    driver = Driver(make_runner(sim))
    victim, other = driver.add(PROMPT), driver.add(PROMPT[::-1])
    driver.step()
    # The last full block is visible to both groups; it is replaced by the neighbour's.
    driver.runner._table.tables[group][victim.row, 2] = other.blocks[group][2]  # type: ignore[attr-defined]
    driver.generate([victim], 5)
    assert victim.output[0] == alone(PROMPT, 1, sim)[0]
    assert victim.output[1:] != alone(PROMPT, 5, sim)[1:]


def test_a_block_that_was_never_written_changes_the_text() -> None:
    driver = Driver(make_runner())
    first = driver.add(PROMPT)
    driver.step()
    second = driver.add(PROMPT, shared=first, num_shared=32)
    second.blocks[0][0] = 63
    driver._new[-1] = type(driver._new[-1])(
        **{f: getattr(driver._new[-1], f) for f in driver._new[-1].__struct_fields__}
        | {"blocks": (np.array(second.blocks[0], np.int32).tobytes(),)}
    )
    driver.generate([second], 3)
    assert second.output != alone(PROMPT, 3)


def test_a_window_forgets_what_is_behind_it() -> None:
    # One group with a window of its own would still see its chain of digests: only blocks are forgotten.
    driver = Driver(make_runner("groups=2,window=20"))
    choice = driver.add(PROMPT)
    driver.step()
    driver.runner._table.tables[1][choice.row, 0] = 63  # type: ignore[attr-defined]
    driver.generate([choice], 5)
    assert choice.output == alone(PROMPT, 5, "groups=2,window=20")


def test_draws_depend_on_seed_choice_and_position_alone() -> None:
    warm = SamplingParams(temperature=1.0)
    one = alone(PROMPT, 10, params=warm, seed=5)
    assert one == alone(PROMPT, 10, params=warm, seed=5)
    assert one != alone(PROMPT, 10, params=warm, seed=6)
    assert one != alone(PROMPT, 10, params=warm, seed=5, choice=1)
    assert alone(PROMPT, 10, seed=5) == alone(PROMPT, 10, seed=6)


def test_eos_comes_about_as_often_as_asked() -> None:
    tokens = alone(PROMPT, 400, "eos=2,eos_every=8")
    assert 20 < tokens.count(2) < 90
    assert 2 not in alone(PROMPT, 400, "eos=2,eos_every=100000000")


def test_min_tokens_holds_eos_back() -> None:
    tokens = alone(
        PROMPT, 400, "eos=2,eos_every=2", SamplingParams(temperature=0, min_tokens=200, max_tokens=400)
    )
    assert 2 not in tokens[:200]
    assert 2 in tokens[200:]


def test_logprobs_come_for_rows_that_ask() -> None:
    driver = Driver(make_runner())
    driver.add(PROMPT)
    driver.add(PROMPT, SamplingParams(temperature=0, logprobs=2))
    columns = driver.step().logprobs
    assert columns is not None
    assert np.frombuffer(columns.counts, np.int32).tolist() == [0, 3]
    assert np.frombuffer(columns.ranks, np.int32).tolist() == [0, 1]


def test_an_injected_row_error_hits_one_row() -> None:
    driver = Driver(make_runner("error_row_every=3"))
    choices = [driver.add(PROMPT[i:]) for i in range(4)]
    output = driver.step()
    assert [error.row for error in output.errors] == [2]
    assert output.rows.tolist() == [0, 1, 3]
    assert [choice.output for choice in choices][3] == alone(PROMPT[3:], 1)


def test_what_needs_a_model_is_the_request_s_fault() -> None:
    driver = Driver(make_runner())
    driver.add(PROMPT)
    driver.add(PROMPT, SamplingParams(structured_outputs=StructuredOutputsParams(regex="a")))
    output = driver.step()
    assert [(error.row, error.param) for error in output.errors] == [(1, "structured_outputs")]
    assert output.rows.tolist() == [0]


def test_an_injected_crash_comes_behind_its_step() -> None:
    driver = Driver(make_runner("crash_after=2"))
    driver.add(PROMPT)
    driver.step()
    driver.step()
    with pytest.raises(SimulatedFaultError):
        driver.step()


def test_a_step_takes_the_time_of_its_model() -> None:
    driver = Driver(make_runner("step_ms=5,prefill_us=100"))
    driver.add(PROMPT)
    assert driver.step().device_ms >= 10
    assert driver.step().device_ms >= 5.1


def test_a_failed_load_is_a_model_error() -> None:
    with pytest.raises(ModelError):
        make_runner("fail_load=1")


@pytest.mark.parametrize("text", ["nonsense", "step_ms=fast", "speed=1", "groups=0", "window=1", "model=gpt"])
def test_wrong_options_are_named(text: str) -> None:
    with pytest.raises(UsageError, match=text.split("=")[0]):
        parse_options(text)


def test_no_torch_is_imported() -> None:
    imports = "import sys, octavo.worker_proc.sim.load, octavo.worker_proc.process"
    code = f"{imports}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@settings(max_examples=40, deadline=None)
@given(
    prompts=st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=70), min_size=1, max_size=4),
    chunks=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    leave=st.integers(0, 6),
)
def test_any_schedule_gives_the_lone_text(prompts: list[list[int]], chunks: list[int], leave: int) -> None:
    driver = Driver(make_runner("groups=2,window=20"))
    choices = [driver.add(prompt) for prompt in prompts]
    for step in range(12):
        active = [c for i, c in enumerate(choices) if (i + step) % 7 != leave]
        driver.step(chunks[step % len(chunks)], active)
    for prompt, choice in zip(prompts, choices, strict=True):
        assert choice.output == alone(prompt, len(choice.output), "groups=2,window=20")
