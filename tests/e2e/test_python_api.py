"""The Python API as programs use it: the examples as written, and what happens when things end early."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

import octavo
from octavo import LLM, AsyncLLMEngine, EngineArgs, LLMEngine, SamplingParams
from octavo.protocol.errors import EngineDeadError, RequestTimeoutError
from octavo.tests.support.demo import demo_model
from octavo.tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ROOT = Path(octavo.__file__).parent
PARIS = "The capital of France is"
LONG = SamplingParams(max_tokens=2000, ignore_eos=True)


def run_program(path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT.parent)}
    done = subprocess.run(
        [sys.executable, str(path)], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def sim_args(**more: object) -> EngineArgs:
    return EngineArgs(model=str(demo_model()), device="sim", **more)  # type: ignore[arg-type]


@asynccontextmanager
async def slow_engine() -> AsyncIterator[AsyncLLMEngine]:
    """An engine whose every step takes 5 ms."""
    async with AsyncLLMEngine.from_engine_args(sim_args(sim="step_ms=5")) as engine:
        yield engine


async def until_idle(engine: AsyncLLMEngine) -> None:
    assert engine._client is not None
    async with asyncio.timeout(5):
        while (stats := await engine._client.stats()).running or stats.waiting:
            await asyncio.sleep(0.01)


def processes() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(str(demo_model()), device="cpu", dtype="float32", max_model_len=2048) as llm:
        yield llm


@pytest.fixture(scope="module")
def sim() -> Iterator[LLM]:
    with LLM(str(demo_model()), device="sim", max_model_len=2048, sim="step_ms=1") as llm:
        yield llm


@pytest.mark.parametrize(
    "name",
    ["batch", "stream", "llm_engine_loop", "n_samples", "beam_search", "logprobs", "structured_output"],
)
def test_example_says_paris(name: str) -> None:
    assert "Paris" in run_program(ROOT / "examples" / f"{name}.py")


def test_fastapi_example_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastapi.testclient import TestClient

    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from fastapi_app import app  # type: ignore[import-not-found]

    with TestClient(app) as client:
        answer = client.get("/generate", params={"prompt": PARIS, "max_tokens": 8})
    assert answer.status_code == 200 and "Paris" in answer.text


def test_one_prompt_and_a_list_give_the_same(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=8)
    (one,) = llm.generate(PARIS, params, use_tqdm=False)
    both = llm.generate(["Water boils at", PARIS], params, use_tqdm=False)
    assert [output.prompt for output in both] == ["Water boils at", PARIS]
    assert both[1].outputs[0].text == one.outputs[0].text
    assert "Paris" in one.outputs[0].text and one.finished


def test_pieces_of_a_stream_are_the_whole(llm: LLM) -> None:
    whole = llm.generate(PARIS, SamplingParams(temperature=0, max_tokens=16), use_tqdm=False)
    params = SamplingParams(temperature=0, max_tokens=16, stream=True)
    pieces = list(llm.generate(PARIS, params))
    assert "".join(piece.outputs[0].text for piece in pieces) == whole[0].outputs[0].text
    assert len(pieces) > 4 and [piece.finished for piece in pieces[-2:]] == [False, True]


def test_stop_string_cuts_text_and_tokens(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=16, logprobs=1, stop=["Paris"])
    choice = llm.generate(PARIS, params, use_tqdm=False)[0].outputs[0]
    assert (choice.finish_reason, choice.stop_reason) == ("stop", "Paris")
    assert "Paris" not in choice.text
    assert choice.logprobs is not None and len(choice.token_ids) == len(choice.logprobs) < 16


def test_more_prompts_than_a_socket_holds(sim: LLM) -> None:
    params = SamplingParams(max_tokens=2, ignore_eos=True)
    prompts = [[5 + number % 1000, 6] for number in range(3000)]
    outputs = sim.generate(prompts, params, use_tqdm=False)
    assert [output.prompt_token_ids for output in outputs] == prompts
    assert all(len(output.outputs[0].token_ids) == 2 for output in outputs)


def test_interleaved_batches_keep_their_outputs(sim: LLM) -> None:
    stream = sim.generate([[5, 6], [7]], SamplingParams(max_tokens=50, ignore_eos=True, stream=True))
    assert isinstance(stream, Iterator)
    next(stream)
    (other,) = sim.generate([8, 9], SamplingParams(max_tokens=100, ignore_eos=True), use_tqdm=False)
    assert len(other.outputs[0].token_ids) == 100
    rest = list(stream)
    assert sum(piece.finished for piece in rest) == 2
    assert all(piece.prompt_token_ids in ([5, 6], [7]) for piece in rest)


def test_dropped_stream_ends_its_requests(sim: LLM) -> None:
    stream = sim.generate([5, 6], SamplingParams(max_tokens=1000, ignore_eos=True, stream=True))
    assert sim.llm_engine.has_unfinished_requests()
    del stream  # never started
    assert not sim.llm_engine.has_unfinished_requests()


def test_timeout_ends_one_prompt_and_not_the_others(sim: LLM) -> None:
    params = [SamplingParams(max_tokens=2000, ignore_eos=True, timeout=0.1), SamplingParams(max_tokens=3)]
    late, done = sim.generate([[5], [6]], params, use_tqdm=False)
    assert late.outputs[0].finish_reason == "timeout" and late.finished
    assert done.outputs[0].finish_reason in ("length", "stop")


def test_llm_in_a_notebook_and_after_shutdown() -> None:
    async def cell() -> None:
        with LLM(str(demo_model()), device="sim") as llm:
            (output,) = llm.generate([5, 6], SamplingParams(max_tokens=3, ignore_eos=True), use_tqdm=False)
            assert len(output.outputs[0].token_ids) == 3
        llm.shutdown()
        with pytest.raises(EngineDeadError, match="shut down"):
            llm.generate([5, 6])

    asyncio.run(cell())


def test_o45_second_use_of_an_id_is_refused() -> None:
    async def program() -> None:
        async with slow_engine() as engine:
            first = engine.generate([5, 6], LONG, "same")
            await anext(first)
            with pytest.raises(ValueError, match="'same' is in use"):
                await anext(engine.generate([7], LONG, "same"))
            assert (await anext(first)).request_id == "same"  # the first goes on
            await first.aclose()
            await until_idle(engine)
            again = engine.generate([5, 6], SamplingParams(max_tokens=2, ignore_eos=True), "same")
            assert [output.finished async for output in again][-1]

    asyncio.run(program())


def test_closed_and_cancelled_generators_end_their_requests() -> None:
    async def program() -> None:
        async with slow_engine() as engine:
            left = engine.generate([5], LONG)
            await anext(left)

            async def consume() -> None:
                async for _ in engine.generate([6], LONG):
                    started.set()

            started = asyncio.Event()
            task = asyncio.create_task(consume())
            await started.wait()
            task.cancel()
            await left.aclose()
            await until_idle(engine)
            assert not engine._open and engine._client is not None and not engine._client.core.num_open

    asyncio.run(program())


def test_timeout_is_raised() -> None:
    async def program() -> None:
        async with slow_engine() as engine:
            with pytest.raises(RequestTimeoutError):
                async for _ in engine.generate(
                    [5], SamplingParams(max_tokens=2000, ignore_eos=True, timeout=0.2)
                ):
                    pass

    asyncio.run(program())


def test_engine_outlives_its_event_loop() -> None:
    engine = AsyncLLMEngine.from_engine_args(sim_args())

    async def program() -> int:
        outputs = [out async for out in engine.generate([5], SamplingParams(max_tokens=3, ignore_eos=True))]
        return len(outputs[-1].outputs[0].token_ids)

    try:
        assert [asyncio.run(program()), asyncio.run(program())] == [3, 3]
    finally:
        engine.shutdown()
        engine.shutdown()


def test_dead_worker_is_named_and_leaves_no_orphan() -> None:
    before = set(processes())
    with LLMEngine(sim_args(sim="step_ms=5", max_restarts=0)) as engine:
        started = set(processes()) - before
        (worker,) = [child for child in started if "worker_proc" in " ".join(child.cmdline())]
        for name in "ab":
            engine.add_request(name, [5, 6], LONG)
        engine.step()
        os.kill(worker.pid, signal.SIGKILL)
        killed = time.monotonic()
        with pytest.raises(EngineDeadError, match="worker"):
            while True:
                engine.step()
        assert time.monotonic() - killed < 10
        assert not engine.has_unfinished_requests()
        with pytest.raises(EngineDeadError):
            engine.step()
    wait_until(lambda: not any(child.is_running() for child in started), within=10, what="no orphan is left")


@pytest.mark.parametrize("guard", ["if __name__ == '__main__':\n    ", ""], ids=["guard", "bare"])
def test_o61_script_with_and_without_a_main_guard(tmp_path: Path, guard: str) -> None:
    script = tmp_path / "script.py"
    params = "SamplingParams(max_tokens=3, ignore_eos=True)"
    call = f"LLM({str(demo_model())!r}, device='sim').generate([5], {params})"
    script.write_text(
        f"from octavo import LLM, SamplingParams\n{guard}print(len({call}[0].outputs[0].token_ids))\n"
    )
    assert run_program(script).strip() == "3"
