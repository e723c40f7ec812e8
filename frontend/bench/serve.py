"""`octavo bench serve`: loads over HTTP by name against a server of one's own or a running one.

A line for each load: tokens a second, beside the least time that reading prompts and weights takes; times to
the first token and between tokens; frames a token. `--sweep` draws latency against load. Behind `--` stand
flags of the server.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ..cli.local_server import LocalServer
from .bounds import ModelCost, least_seconds, model_cost
from .device import measure_ceilings
from .http_cases import CASES, HttpCase, at_concurrency
from .load import Report, Shape, make_bodies, percentile, run_load
from .models import SHAPES, make_model_folder
from .plot import draw_latency
from .processes import run_processes
from .work import Work

_PERCENTS = (50, 90, 99)
_WARM_UP = Shape(name="warm-up", num_requests=32, concurrency=16, prompt_len=(16, 600), output_len=(8, 24))


@dataclass(frozen=True)
class Row:
    """One measurement. Times are in milliseconds, at 50, 90 and 99 percent of requests or gaps."""

    case: str
    num_requests: int
    concurrency: int
    seconds: float
    tokens_per_second: float
    first_ms: tuple[float, ...]
    gap_ms: tuple[float, ...]
    per_token_ms: tuple[float, ...]
    frames_per_token: float
    errors: int
    bound_seconds: float  # 0: not known

    def __str__(self) -> str:
        bound = f", bound {self.bound_seconds:.2f} s = {100 * self.bound_seconds / self.seconds:.0f} %"
        return (
            f"{self.case:8s} {self.seconds:8.2f} s {self.tokens_per_second:9.0f} tok/s"
            f"{bound if self.bound_seconds else ''}; TTFT {_shown(self.first_ms)}, "
            f"ITL {_shown(self.gap_ms)}, TPOT {_shown(self.per_token_ms)} ms; "
            f"{self.frames_per_token:.3f} frames a token, {self.errors} errors"
        )


def main() -> int:
    """Measure, print, and write OUT/serve.json; returns 1 when a request failed."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    ceilings = measure_ceilings()
    _say(str(ceilings or "no CUDA device: no ceilings"))
    cases = [CASES[name] for name in options.cases.split(",") if name]
    sweep = [at_concurrency(int(part)) for part in options.sweep.split(",") if part]
    rows: list[Row] = []
    with _server(options) as (url, cost):
        asyncio.run(run_load(url, _WARM_UP, vocab=options.vocab))
        for case in [*cases, *sweep]:
            rows.append(_measure(url, case, options.vocab, cost))
            _say(str(rows[-1]))
    report = {
        "command": sys.argv,
        "ceilings": ceilings and asdict(ceilings),
        "rows": [asdict(row) for row in rows],
    }
    (options.out / "serve.json").write_text(json.dumps(report, indent=1))
    if sweep:
        draw_latency(rows[len(cases) :], options.out / "latency.png", options.model)
    return int(any(row.errors for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="octavo bench serve", description=__doc__)
    parser.add_argument("--model", default="llama-8b-49k", help=f"one of {', '.join(SHAPES)}, or a folder")
    parser.add_argument("--tokenizer", type=Path, help="folder whose tokenizer a named shape gets")
    parser.add_argument("--url", default="", help="of a running server; --model then only gives the bound")
    parser.add_argument("--cases", default=",".join(CASES), help=f"some of {', '.join(CASES)}")
    parser.add_argument("--sweep", default="", help="numbers of open requests to draw latency against")
    parser.add_argument("--vocab", type=_range, default=(100, 40_000), metavar="FROM,TO")
    parser.add_argument("--out", type=Path, default=Path("bench-serve"), help="folder for the figures")
    parser.add_argument("flags", nargs="*", help="behind --: flags of the server")
    return parser.parse_args()


@contextmanager
def _server(options: argparse.Namespace) -> Iterator[tuple[str, ModelCost | None]]:
    """The address of the server to measure, and its model's cost where it is known."""
    if options.url:
        folder = Path(options.model)
        yield options.url, _cost(folder, options.flags) if folder.is_dir() else None
        return
    with tempfile.TemporaryDirectory(prefix="octavo-bench-") as scratch:
        folder, flags = Path(options.model), list(options.flags)
        if options.model in SHAPES:
            folder = make_model_folder(Path(scratch), options.model)
            copy_tokenizer(options.tokenizer, folder)
            flags = ["--load-format", "dummy", "--max-model-len", "8192", *flags]
        server = LocalServer(str(folder), flags, keep=False)
        try:
            yield server.info.url, _cost(folder, flags)
        finally:
            server.close()


def copy_tokenizer(source: Path | None, folder: Path) -> None:
    """Give a model folder the tokenizer of another. Raises FileNotFoundError when there is none."""
    from ..demo import ensure_demo_model

    source = source or Path(ensure_demo_model())
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, folder / name)


def _cost(folder: Path, flags: list[str]) -> ModelCost:
    config = json.loads((folder / "config.json").read_text())
    return model_cost(config, layer_bytes=1 if "fp8" in flags else 2)


def _measure(url: str, case: HttpCase, vocab: tuple[int, int], cost: ModelCost | None) -> Row:
    report = run_processes(url, case.shape, processes=case.processes, vocab=vocab)
    for error in report.errors[:3]:
        _say(f"{case.shape.name}: {error}")
    return Row(
        case=case.shape.name,
        num_requests=case.shape.num_requests,
        concurrency=case.shape.concurrency,
        seconds=report.seconds,
        tokens_per_second=report.tokens_per_second,
        first_ms=_milliseconds(report.first),
        gap_ms=_milliseconds(report.gaps),
        per_token_ms=_milliseconds(report.per_token),
        frames_per_token=report.num_frames / max(report.num_tokens, 1),
        errors=len(report.errors),
        bound_seconds=_bound(case.shape, vocab, cost, report) if cost else 0.0,
    )


def _bound(shape: Shape, vocab: tuple[int, int], cost: ModelCost, report: Report) -> float:
    bodies = make_bodies(shape, vocab=vocab, seed=0)
    lengths = tuple((len(list(body["prompt"])), int(str(body["max_tokens"]))) for body in bodies)  # type: ignore[call-overload]
    least = least_seconds(Work(shape.name, "", lengths), cost, concurrency=shape.concurrency)
    return max(least, shape.num_requests / shape.rate) if shape.rate else least


def _milliseconds(seconds: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(round(1e3 * percentile(seconds, percent), 2) for percent in _PERCENTS)


def _shown(values: tuple[float, ...]) -> str:
    return " / ".join(f"{value:.1f}" for value in values)


def _range(text: str) -> tuple[int, int]:
    first, last = map(int, text.split(","))
    return first, last


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
