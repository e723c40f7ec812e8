"""Speed of a frontend process over HTTP, with a simulated device behind the scheduler.

Opens streams and reads them with a client that only counts. Prints frames (one token each, but for those that
came before the stream was open) for each second of processor time of the frontend, the figure that counts:
all processes share the machine. Prints the same for scheduler, worker and client, the event loop's lag, and
the memory of a stream. `--json FILE` writes the figures.
"""

import argparse
import json
import os
import re
import urllib.request
from pathlib import Path

import psutil
import uvloop

from octavo.frontend.bench.frames import Counts, read_streams
from octavo.frontend.bench.one_frontend import OneFrontend
from octavo.frontend.cli.local_server import LocalServer

BODIES: dict[str, dict[str, object]] = {
    "/v1/completions": {"prompt": "the cat sat on the mat"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "the cat sat on the mat"}]},
}
FLAGS = ("--device", "sim", "--api-server-count", "1", "--max-num-seqs", "256", "--max-model-len", "2048")


def processor_seconds(processes: dict[str, int]) -> dict[str, float]:
    """Seconds of processor time that each process has used, this one too."""
    pids = {**processes, "client": os.getpid()}
    times = {name: psutil.Process(pid).cpu_times() for name, pid in pids.items()}
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
        run_dir = Path(server.info.endpoint.removeprefix("ipc://")).parent
        with OneFrontend(run_dir) as frontend:
            engine = {name: server.info.processes[name] for name in ("scheduler", "worker-0-0")}
            return measure_one(options, frontend.url, {"frontend": frontend.pid, **engine})
    finally:
        server.close()


def measure_one(options: argparse.Namespace, url: str, processes: dict[str, int]) -> dict[str, object]:
    """The figures of a frontend at `url`."""

    def load(tokens: int) -> Counts:
        body = {**BODIES[options.path], "max_tokens": tokens, "ignore_eos": True}
        return uvloop.run(read_streams(url, options.path, body, options.streams))

    load(8)
    base, before = private_bytes(processes["frontend"]), processor_seconds(processes)
    counts = load(options.tokens)
    after = processor_seconds(processes)
    tokens = options.streams * options.tokens
    assert counts.ended == options.streams, f"{options.streams - counts.ended} streams were cut"
    return {
        "tokens": tokens,
        "seconds": counts.last - counts.began,
        "frames_per_token": counts.frames / tokens,
        "frames_per_processor_second": {
            name: counts.frames / (after[name] - before[name]) for name in (*processes, "client")
        },
        "lag_p50_ms": lag_ms(url, 50),
        "lag_p99_ms": lag_ms(url, 99),
        "kilobytes_per_stream": (private_bytes(processes["frontend"]) - base) / options.streams / 1e3,
    }


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
