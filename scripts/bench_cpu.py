"""Speed of the demo model on this CPU over HTTP, beside transformers' generate in the same run.

Each case keeps a number of streams open: token-id prompts, temperature 1, the end token ignored, one frame a
token. Prints tokens a second, the ratio to transformers at batch 1, and the physical limit of one stream: the
weights read once a token at the measured memory bandwidth. `--json FILE` writes the figures.
"""

import argparse
import asyncio
import itertools
import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
import psutil

from octavo.frontend.cli.local_server import LocalServer
from octavo.frontend.demo import ensure_demo_model

VOCAB = 40000


@dataclass(frozen=True)
class Case:
    """A load: how many requests, how many at once, tokens in and out."""

    name: str
    num: int
    concurrency: int
    in_len: tuple[int, int]
    out_len: tuple[int, int]
    prefix: int = 0


CASES = (
    Case("c1", 3, 1, (128, 128), (128, 128)),
    Case("c8", 16, 8, (128, 128), (128, 128)),
    Case("c32", 64, 32, (64, 128), (64, 128)),
    Case("prefix", 32, 8, (16, 32), (32, 32), prefix=512),
)


@dataclass
class Figures:
    """What a case came to."""

    name: str
    tok_s: float
    ttft_ms: float  # median
    itl_ms: float  # median
    ratio: float = 0.0  # to transformers at batch 1
    frames_per_token: float = 0.0


async def one_stream(session: aiohttp.ClientSession, url: str, prompt: list[int], out: int) -> list[float]:
    """The time of each frame that holds a token; the first entry is when the request was sent."""
    body = {"prompt": prompt, "max_tokens": out, "temperature": 1.0, "ignore_eos": True, "stream": True}
    times = [time.perf_counter()]
    async with session.post(f"{url}/v1/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if line.startswith(b"data: {"):
                times.append(time.perf_counter())
    return times


async def run_case(url: str, case: Case, seed: int) -> Figures:
    """Run a case and measure it."""
    rng = random.Random(seed)

    def ids(count: int) -> list[int]:
        return [rng.randrange(100, VOCAB) for _ in range(count)]

    prefix = ids(case.prefix)
    jobs = [(prefix + ids(rng.randint(*case.in_len)), rng.randint(*case.out_len)) for _ in range(case.num)]
    gate = asyncio.Semaphore(case.concurrency)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:

        async def go(prompt: list[int], out: int) -> list[float]:
            async with gate:
                return await one_stream(session, url, prompt, out)

        began = time.perf_counter()
        streams = await asyncio.gather(*(go(prompt, out) for prompt, out in jobs))
        seconds = time.perf_counter() - began
    tokens = sum(out for _, out in jobs)
    frames = sum(len(times) - 1 for times in streams)
    gaps = [b - a for times in streams for a, b in itertools.pairwise(times[1:])]
    firsts = [times[1] - times[0] for times in streams]
    return Figures(
        case.name,
        tokens / seconds,
        statistics.median(firsts) * 1e3,
        statistics.median(gaps) * 1e3,
        frames_per_token=frames / tokens,
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
        asyncio.run(run_case(url, Case("warm", 8, 8, (128, 128), (16, 16)), seed + 1))
        figures = [asyncio.run(run_case(url, case, seed)) for case in CASES]
        family = [psutil.Process(pid) for pid in [server.info.pid, *server.info.processes.values()]]
        return figures, start, float(sum(process.memory_info().rss for process in family))
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
            f"{case.ttft_ms:.0f} ms  ITL p50 {case.itl_ms:.1f} ms  frames/token {case.frames_per_token:.3f}"
        )
    if options.json:
        options.json.write_text(
            json.dumps(
                {"start": start, "memory": memory, "transformers": base, "cases": list(map(asdict, figures))}
            )
        )


if __name__ == "__main__":
    main()
