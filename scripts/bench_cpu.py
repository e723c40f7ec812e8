"""Speed of the demo model on this CPU over HTTP, beside transformers' generate in the same run.

Each case keeps a number of streams open: token-id prompts, temperature 1, the end token ignored, one frame a
token. Prints tokens a second, the ratio to transformers at batch 1, and the physical limit of one stream: the
weights read once a token at the measured memory bandwidth. Transformers is measured before and after each
case, and a case is compared with what stands around it: a machine that drifts cannot falsify the ratio.
`--json FILE` writes the figures.
"""

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
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
    transformers: float = 0.0  # its tokens a second at batch 1, around the case
    ratio: float = 0.0  # to that


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


class Transformers:
    """transformers' generate at batch 1, bfloat16, all threads, 128 tokens in and out, temperature 1.

    In a process of its own: in this one it would burden the client that times our frames.
    """

    def __init__(self, model: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--transformers", str(model)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    def seconds(self) -> float:
        """How long 128 tokens take now."""
        assert self._process.stdin is not None
        self._process.stdin.write("again\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _read(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("transformers ended")
        return float(line)


def serve_transformers(model: Path) -> None:
    """Generate once a line of standard input, and print how many seconds it took; once more to warm up."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(psutil.cpu_count(logical=True) or 1)
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).eval()
    prompt = torch.randint(100, VOCAB, (1, 128))
    for count in itertools.chain((8,), (128 for _ in sys.stdin)):
        began = time.perf_counter()
        loaded.generate(
            prompt, max_new_tokens=count, min_new_tokens=count, do_sample=True, top_k=0, pad_token_id=0
        )
        print(time.perf_counter() - began, flush=True)


def limit_of_one_stream(model: Path) -> float:
    """Tokens a second if reading the weights once were all there is to do."""
    import torch

    block = torch.ones(256 << 20, dtype=torch.uint8).view(torch.int64)
    block.sum()
    began = time.perf_counter()
    block.sum()
    bandwidth = block.nbytes / (time.perf_counter() - began)
    return bandwidth / sum(file.stat().st_size for file in model.glob("*.safetensors"))


def measure(flags: Sequence[str], seed: int, peer: Transformers) -> tuple[list[Figures], float, float]:
    """Figures of all cases, seconds to the first healthy answer, bytes of all processes together."""
    began = time.perf_counter()
    server = LocalServer("demo", flags, keep=False)
    start = time.perf_counter() - began
    try:
        url = server.info.url
        asyncio.run(run_load(url, WARM_UP, seed=seed + 1))
        figures = []
        before = peer.seconds()
        for shape in SHAPES:
            case = figures_of(asyncio.run(run_load(url, shape, seed=seed)))
            after = peer.seconds()
            case.transformers = 2 * 128 / (before + after)
            case.ratio = case.tok_s / case.transformers
            figures.append(case)
            before = after
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
    parser.add_argument("--transformers", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("flags", nargs="*", help="for octavo serve")
    options = parser.parse_args()
    if options.transformers:
        return serve_transformers(options.transformers)
    model = ensure_demo_model()
    peer = Transformers(model)
    figures, start, memory = measure(["--dtype", "bfloat16", *options.flags], options.seed, peer)
    peer.close()
    limit = limit_of_one_stream(model)
    rates = [case.transformers for case in figures]
    print(
        f"start {start:.1f} s, memory {memory / 1e9:.2f} GB, "
        f"transformers batch 1 {min(rates):.1f} to {max(rates):.1f} tok/s"
    )
    for case in figures:
        share = f", {100 * case.tok_s / limit:.0f} % of {limit:.0f}" if case.name == "c1" else ""
        beside = f"{case.ratio:.1f} x transformers' {case.transformers:.1f}{share}"
        print(
            f"{case.name:7s}{case.tok_s:8.1f} tok/s ({beside})  TTFT p50 {case.ttft_ms:.0f} ms  "
            f"ITL p50 {case.itl_ms:.1f} p99 {case.itl_p99_ms:.1f} ms  "
            f"frames/token {case.frames_per_token:.3f}"
        )
    if options.json:
        options.json.write_text(
            json.dumps({"start": start, "memory": memory, "cases": [asdict(case) for case in figures]})
        )


if __name__ == "__main__":
    main()
