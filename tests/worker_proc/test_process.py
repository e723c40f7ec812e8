"""A worker as a real process beside a scheduler on a real socket."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from octavo.protocol import codec
from octavo.protocol.lifecycle import WorkerFailed, WorkerHello, WorkerProgress, WorkerReady
from octavo.protocol.lifeline import ORPHANED
from octavo.protocol.steps import StepResult, Stop

from ..support.cpu_runner import reference_greedy
from ..support.driver import Driver
from ..support.fake_scheduler import FakeScheduler, PlanTarget, WorkerProcess, short_run_dir
from ..support.models import make_ctx_model

PROMPT = list(range(40, 90))
StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def run_dir() -> Iterator[Path]:
    with short_run_dir() as path:
        yield path


@pytest.fixture
def scheduler(run_dir: Path) -> Iterator[FakeScheduler]:
    scheduler = FakeScheduler(run_dir)
    yield scheduler
    scheduler.close()


@pytest.fixture
def start_worker(run_dir: Path) -> Iterator[StartWorker]:
    workers: list[WorkerProcess] = []

    def start(**fields: object) -> WorkerProcess:
        workers.append(WorkerProcess(run_dir, **fields))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


def join(scheduler: FakeScheduler) -> tuple[WorkerHello, WorkerReady]:
    return scheduler.expect(WorkerHello), scheduler.expect(WorkerReady)


def make_driver(scheduler: FakeScheduler, incarnation: int = 1) -> Driver:
    hello, ready = join(scheduler)
    return Driver(PlanTarget(scheduler, ready), incarnation=incarnation, worker=hello.incarnation)


def test_it_introduces_itself_reports_and_is_ready(
    scheduler: FakeScheduler, start_worker: StartWorker
) -> None:
    worker = start_worker(sim="load_s=1.5")
    hello = scheduler.expect(WorkerHello)
    assert (hello.fingerprint, hello.group, hello.rank) == (codec.FINGERPRINT, 0, 0)
    assert hello.pid == worker.process.pid
    progress = scheduler.expect(WorkerProgress)
    while progress.phase != "weights":
        progress = scheduler.expect(WorkerProgress)
    ready = scheduler.expect(WorkerReady)
    assert ready.incarnation == hello.incarnation == progress.incarnation
    assert [phase.name for phase in ready.phases] == ["start", "import", "weights"]
    assert ready.phases[2].seconds >= 1.5


def test_it_waits_for_a_scheduler_that_comes_later(run_dir: Path, start_worker: StartWorker) -> None:
    worker = start_worker(sim="load_s=0.3")
    scheduler = FakeScheduler(run_dir)
    driver = make_driver(scheduler)
    assert len(driver.generate([driver.add(PROMPT)], 4)[0]) == 4
    scheduler.send(Stop())
    assert worker.wait() == 0
    scheduler.close()


def test_results_follow_plans_that_were_sent_ahead(
    scheduler: FakeScheduler, start_worker: StartWorker
) -> None:
    start_worker(sim="step_ms=2")
    driver = make_driver(scheduler)
    choice = driver.add(PROMPT)
    expected = driver.generate([choice], 3)[0]
    again = driver.add(PROMPT)
    plans = [driver.plan()]
    for _ in range(2):
        again.output.append(0)  # the value is not needed: it stays in the worker
        plans.append(driver.plan())
    for plan in plans:
        scheduler.send(plan)
    results = [scheduler.expect(StepResult) for _ in plans]
    assert [result.step for result in results] == [plan.step for plan in plans]
    assert [int.from_bytes(result.token, "little") for result in results] == expected
    assert all(result.host_ms >= result.device_ms >= 2 for result in results)


def test_stop_ends_it_with_status_0(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    worker = start_worker()
    join(scheduler)
    scheduler.send(Stop())
    assert worker.wait() == 0
    assert not worker.error_file.exists()


@pytest.mark.parametrize("when", ["loading", "serving"])
def test_sigterm_ends_it_with_status_0(
    scheduler: FakeScheduler, start_worker: StartWorker, when: str
) -> None:
    worker = start_worker(sim="load_s=60" if when == "loading" else "")
    scheduler.expect(WorkerHello)
    if when == "serving":
        scheduler.expect(WorkerReady)
    worker.process.send_signal(signal.SIGINT)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert not worker.error_file.exists()


def test_a_lost_parent_ends_it(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    worker = start_worker()
    join(scheduler)
    worker.lifeline.cut()
    assert worker.wait() == ORPHANED


def test_a_restarted_scheduler_meets_the_same_worker_without_rows(
    run_dir: Path, start_worker: StartWorker
) -> None:
    worker = start_worker()
    first = FakeScheduler(run_dir)
    driver = make_driver(first, incarnation=1)
    expected = driver.generate([driver.add(PROMPT)], 4)[0]
    driver.add(PROMPT, row=3)
    driver.step()
    first.close()
    second = FakeScheduler(run_dir)
    old_life = driver.worker
    driver = make_driver(second, incarnation=2)
    assert driver.worker == old_life
    assert driver.generate([driver.add(PROMPT, row=3)], 4)[0] == expected
    second.close()
    assert worker.process.poll() is None


def test_plans_for_an_earlier_life_are_dropped(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    start_worker()
    driver = make_driver(scheduler)
    alive, driver.worker = driver.worker, 12345
    driver.add(PROMPT)
    scheduler.send(driver.plan())
    driver = Driver(driver.runner, worker=alive)
    assert len(driver.generate([driver.add(PROMPT)], 2)[0]) == 2


def test_frames_that_are_no_messages_are_skipped(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    start_worker()
    driver = make_driver(scheduler)
    scheduler.send_frame(b"\xc1 no message")
    assert len(driver.generate([driver.add(PROMPT)], 2)[0]) == 2


def test_a_missing_plan_ends_it_with_the_reason(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    worker = start_worker()
    driver = make_driver(scheduler)
    driver.add(PROMPT)
    driver.step()
    driver.plan()
    scheduler.send(driver.plan())
    failed = scheduler.expect(WorkerFailed)
    assert (failed.kind, failed.message) == ("ProtocolError", "step 3 came behind step 1")
    assert worker.wait() == 1
    assert worker.error_file.read_text() == f"ProtocolError: {failed.message}\n"


@pytest.mark.parametrize(
    ("fields", "kind", "status"),
    [
        ({"sim": "fail_load=1"}, "ModelError", 3),
        ({"sim": "speed=9"}, "UsageError", 2),
        ({"device": "abacus"}, "UsageError", 2),
    ],
)
def test_a_start_that_fails_says_why(
    scheduler: FakeScheduler, start_worker: StartWorker, fields: dict[str, str], kind: str, status: int
) -> None:
    worker = start_worker(**fields)
    scheduler.expect(WorkerHello)
    assert scheduler.expect(WorkerFailed).kind == kind
    assert worker.wait() == status
    lines = worker.error_file.read_text().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"{kind}: ")


def test_a_fault_of_the_device_ends_it_with_the_reason(
    scheduler: FakeScheduler, start_worker: StartWorker
) -> None:
    worker = start_worker(sim="crash_after=1")
    driver = make_driver(scheduler)
    driver.add(PROMPT)
    driver.step()
    scheduler.send(driver.plan())
    assert scheduler.expect(WorkerFailed).kind == "SimulatedFaultError"
    assert worker.wait() == 1


def test_a_model_on_the_cpu_serves_plans(
    scheduler: FakeScheduler, start_worker: StartWorker, tmp_path: Path
) -> None:
    model = make_ctx_model(tmp_path)
    start_worker(
        device="cpu",
        model_path=str(model),
        vocab_size=json.loads((model / "config.json").read_text())["vocab_size"],
        dtype="float32",
        cpu_threads=1,
    )
    driver = make_driver(scheduler)
    assert driver.generate([driver.add(PROMPT)], 8)[0] == reference_greedy(model, PROMPT, 8)


def test_a_broken_model_ends_the_start(
    scheduler: FakeScheduler, start_worker: StartWorker, tmp_path: Path
) -> None:
    worker = start_worker(device="cpu", model_path=str(tmp_path))
    scheduler.expect(WorkerHello)
    assert scheduler.expect(WorkerFailed).kind == "ModelError"
    assert worker.wait() == 3
    assert "config.json" in worker.error_file.read_text()
