"""Speed of a frontend process over HTTP, with a simulated device behind the scheduler.

Opens streams of one frame a token and reads them with a client that only counts. Prints tokens for each second
of processor time of the frontend (the figure that counts: all processes share the machine), the same for
scheduler and worker, the event loop's lag, and the memory of a stream. `--json FILE` writes the figures.
"""

import argparse
import json
import re
import urllib.request
from pathlib import Path

import psutil
import uvloop

from octavo.frontend.bench.frames import Counts, read_streams
from octavo.frontend.cli.local_server import LocalServer

BODIES: dict[str, dict[str, object]] = {
    "/v1/completions": {"prompt": "the cat sat on the mat"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "the cat sat on the mat"}]},
}
FLAGS = ("--device", "sim", "--api-server-count", "1", "--max-num-seqs", "256", "--max-model-len", "2048")


def processor_seconds(processes: dict[str, int]) -> dict[str, float]:
    """Seconds of processor time that each process has used."""
    times = {name: psutil.Process(pid).cpu_times() for name, pid in processes.items()}
    return {name: used.user + used.system for name, used in times.items()}


def lag_ms(url: str, percent: float) -> float:
    """The bound of the bucket that holds this percentile of the event loop's lag."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r'event_loop_lag_seconds_bucket{[^}]*le="([^"]+)"[^}]*} ([\d.e+]+)', text)
    buckets = sorted((float(bound), float(count)) for bound, count in found)
    total = buckets[-1][1]
    return next(bound for bound, count in buckets if count >= total * percent / 100) * 1e3


def private_bytes(pid: int) -> int:
    """Memory that belongs to this process alone."""
    return int(psutil.Process(pid).memory_full_info().uss)


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Start a server, read the streams, and return the figures."""
    server = LocalServer(options.model, [*FLAGS, "--sim", f"step_ms={options.step_ms}"], keep=False)
    try:
        info = server.info
        body = {**BODIES[options.path], "max_tokens": options.tokens, "ignore_eos": True}

        def load(count: int, tokens: int) -> Counts:
            work = read_streams(info.url, options.path, {**body, "max_tokens": tokens}, count)
            return uvloop.run(work)

        load(options.streams, 8)
        before_bytes = private_bytes(info.processes["frontend-0"])
        before, own = processor_seconds(info.processes), psutil.Process().cpu_times()
        counts = load(options.streams, options.tokens)
        after, own_after = processor_seconds(info.processes), psutil.Process().cpu_times()
        grown = private_bytes(info.processes["frontend-0"]) - before_bytes
        used = {name: after[name] - before[name] for name in before}
        used["client"] = own_after.user + own_after.system - own.user - own.system
        tokens = options.streams * options.tokens
        return {
            "tokens": tokens,
            "ended": counts.ended,
            "frames_per_token": counts.frames / tokens,
            "seconds": counts.last - counts.first,
            "tokens_per_processor_second": {n: tokens / s if s else None for n, s in used.items()},
            "lag_p99_ms": lag_ms(info.url, 99),
            "grown_bytes_per_stream": grown / options.streams,
        }
    finally:
        server.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench-frontend", description=__doc__)
    parser.add_argument("--model", default="demo", help="whose tokenizer is used")
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=500, help="of each stream")
    parser.add_argument("--step-ms", type=float, default=2.0)
    parser.add_argument("--path", default="/v1/completions", choices=BODIES)
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    figures = measure(options)
    for name, value in figures.items():
        print(f"{name}: {value}")
    if options.json:
        options.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
