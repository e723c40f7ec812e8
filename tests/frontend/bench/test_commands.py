"""The commands that measure a server, on a simulated device: their lines, files and exit statuses."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.frontend.bench import serve, soak, startup
from octavo.frontend.bench.bounds import least_seconds, model_cost
from octavo.frontend.bench.http_cases import CASES, at_concurrency
from octavo.frontend.bench.models import SHAPES
from octavo.frontend.bench.work import Work
from octavo.tests.support.models import make_ctx_model

FLAGS = ["--", "--device", "sim", "--sim", "step_ms=1", "--max-model-len", "2048"]

Run = Callable[..., int]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ctx_model(tmp_path_factory.mktemp("ctx"))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, model: Path) -> Run:
    """Runs a command's `main` on the model, without measuring a device first."""
    for module in (serve, startup):
        monkeypatch.setattr(module, "measure_ceilings", lambda: None)

    def command(main: Callable[[], int], *arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["bench", "--model", str(model), *arguments, *FLAGS])
        return main()

    return command


@pytest.mark.e2e
def test_serve_prints_its_loads_and_draws_a_sweep(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--cases", "c1", "--sweep", "1,2", "--vocab", "5,250", "--out", str(tmp_path)]
    assert run(serve.main, *arguments) == 0
    rows = json.loads((tmp_path / "serve.json").read_text())["rows"]
    assert [(row["case"], row["num_requests"]) for row in rows] == [("c1", 3), ("at 1", 6), ("at 2", 12)]
    for row in rows:
        assert row["errors"] == 0
        assert 0 < row["frames_per_token"] <= 1
        assert 0 < row["bound_seconds"] < row["seconds"]
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")
    assert "TTFT" in capsys.readouterr().out


@pytest.mark.e2e
def test_a_start_s_phases_sum_to_the_worker_s(run: Run, tmp_path: Path) -> None:
    assert run(startup.main, "--warm", "0", "--out", str(tmp_path)) == 0
    (row,) = json.loads((tmp_path / "startup.json").read_text())["rows"]
    assert row["kernels"] == "cold"
    assert 0 < sum(row["phases"].values()) < row["healthy_seconds"] < row["first_token_seconds"]


@pytest.mark.e2e
def test_a_soak_counts_what_was_left_and_what_was_done(run: Run, tmp_path: Path) -> None:
    sizes = ["--num", "60", "--concurrency", "20", "--prompt-len", "50", "--output-len", "30"]
    out = tmp_path / "soak.json"
    assert run(soak.main, *sizes, "--vocab", "250", "--left", "0.5", "--out", str(out)) == 0
    report = json.loads(out.read_text())
    assert report["errors"] == []
    assert report["done"] + report["left"] == 60
    assert len(report["readings"]) == 11


def test_cases_at_a_concurrency_have_the_lengths_of_the_named_ones() -> None:
    shape = at_concurrency(64).shape
    assert shape.concurrency == CASES["c64"].shape.concurrency
    assert shape.prompt_len == CASES["c256"].shape.prompt_len


def test_fewer_rows_at_once_need_more_steps() -> None:
    cost = model_cost(SHAPES["llama-3.1-8b"])
    work = Work("w", "", ((128, 256),) * 64)
    assert least_seconds(work, cost, concurrency=64) == least_seconds(work, cost)
    assert least_seconds(work, cost, concurrency=1) > 10 * least_seconds(work, cost)
    halved = model_cost(SHAPES["llama-3.1-8b"], layer_bytes=1)
    assert 0.5 < least_seconds(work, halved, concurrency=1) / least_seconds(work, cost, concurrency=1) < 0.7
