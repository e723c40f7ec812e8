"""Speed of the demo model on this CPU over HTTP, beside transformers' generate in the same run.

Each case keeps a number of streams open: token-id prompts, temperature 1, the end token ignored, one frame a
token. Prints tokens a second, the ratio to transformers at batch 1, and the physical limit of one stream: the
weights read once a token at the measured memory bandwidth. `--json FILE` writes the figures.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from octavo.frontend.bench.load import Report, Shape, percentile, run_load
from octavo.frontend.cli.local_server import LocalServer
from octavo.frontend.demo import ensure_demo_model

VOCAB = 40000
WARM_UP = Shape(name="warm", num_requests=8, concurrency=8, prompt_len=(128, 128), output_len=(16, 16))
SHAPES = (
    Shape(name="c1", num_requests=3, concurrency=1, prompt_len=(128, 128), output_len=(128, 128)),
    Shape(name="c8", num_requests=16, concurrency=8, prompt_len=(128, 128), output_len=(128, 128)),
    Shape(name="c32", num_requests=64, concurrency=32, prompt_len=(64, 128), output_len=(64, 128)),
    Shape(
        name="prefix",
        num_requests=32,
        concurrency=8,
        shared_prefix=512,
        prompt_len=(16, 32),
        output_len=(32, 32),
    ),
)


@dataclass
class Figures:
    """What a load came to."""

    name: str
    tok_s: float
    ttft_ms: float  # median
    itl_ms: float  # median
    itl_p99_ms: float
    frames_per_token: float
    ratio: float = 0.0  # to transformers at batch 1


def figures_of(report: Report) -> Figures:
    """The figures of a load. A load with errors has none."""
    if report.errors:
        raise SystemExit(f"{report.shape.name}: {len(report.errors)} errors, such as {report.errors[0]}")
    return Figures(
        report.shape.name,
        report.tokens_per_second,
        percentile(report.first, 50) * 1e3,
        percentile(report.gaps, 50) * 1e3,
        percentile(report.gaps, 99) * 1e3,
        (len(report.first) + len(report.gaps)) / report.num_tokens,
    )


def transformers_rate(model: Path, threads: int) -> float:
    """Tokens a second of transformers' generate at batch 1, bfloat16, 128 tokens in and out."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).eval()
    prompt = torch.randint(100, VOCAB, (1, 128))
    rates = []
    for _ in range(2):
        began = time.perf_counter()
        loaded.generate(prompt, max_new_tokens=128, min_new_tokens=128, do_sample=True, pad_token_id=0)
        rates.append(128 / (time.perf_counter() - began))
    return max(rates)


def limit_of_one_stream(model: Path) -> float:
    """Tokens a second if reading the weights once were all there is to do."""
    import torch

    block = torch.ones(256 << 20, dtype=torch.uint8).view(torch.int64)
    block.sum()
    began = time.perf_counter()
    block.sum()
    bandwidth = block.nbytes / (time.perf_counter() - began)
    return bandwidth / sum(file.stat().st_size for file in model.glob("*.safetensors"))


def measure(flags: Sequence[str], seed: int) -> tuple[list[Figures], float, float]:
    """Figures of all cases, seconds to the first healthy answer, bytes of all processes together."""
    began = time.perf_counter()
    server = LocalServer("demo", flags, keep=False)
    start = time.perf_counter() - began
    try:
        url = server.info.url
        asyncio.run(run_load(url, WARM_UP, seed=seed + 1))
        figures = [figures_of(asyncio.run(run_load(url, shape, seed=seed))) for shape in SHAPES]
        family = [psutil.Process(pid) for pid in [server.info.pid, *server.info.processes.values()]]
        # A page that several processes share counts once.
        return figures, start, float(sum(process.memory_full_info().pss for process in family))
    finally:
        server.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench-cpu", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("flags", nargs="*", help="for octavo serve")
    options = parser.parse_args()
    model = ensure_demo_model()
    figures, start, memory = measure(["--dtype", "bfloat16", *options.flags], options.seed)
    base = transformers_rate(model, psutil.cpu_count(logical=True) or 1)
    limit = limit_of_one_stream(model)
    print(f"start {start:.1f} s, memory {memory / 1e9:.2f} GB, transformers batch 1 {base:.1f} tok/s")
    for case in figures:
        case.ratio = case.tok_s / base
        share = f", {100 * case.tok_s / limit:.0f} % of {limit:.0f}" if case.name == "c1" else ""
        print(
            f"{case.name:7s}{case.tok_s:8.1f} tok/s ({case.ratio:.1f} x transformers{share})  TTFT p50 "
            f"{case.ttft_ms:.0f} ms  ITL p50 {case.itl_ms:.1f} p99 {case.itl_p99_ms:.1f} ms  "
            f"frames/token {case.frames_per_token:.3f}"
        )
    if options.json:
        options.json.write_text(
            json.dumps(
                {"start": start, "memory": memory, "transformers": base, "cases": list(map(asdict, figures))}
            )
        )


if __name__ == "__main__":
    main()
