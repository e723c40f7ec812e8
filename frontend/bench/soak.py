"""`octavo bench soak`: many requests of random lengths, some of which are left in the middle.

Every request that is not left must bring all its tokens. Memory, of the device and of each process, is read
at every tenth of the way; that of the device must end where it was at the second reading. Behind `--` stand
flags of the server.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from ..cli.local_server import LocalServer
from .device import memory_used
from .models import SHAPES, make_model_folder
from .serve import copy_tokenizer
from .stream import complete

_READINGS = 10
_GROWTH = 1.02  # of the device's memory between the second reading and the last


@dataclass
class Tally:
    """What became of the requests."""

    done: int = 0
    left: int = 0
    num_tokens: int = 0
    errors: list[str] = field(default_factory=list)


def main() -> int:
    """Send the requests; returns 1 when one failed or memory grew."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="octavo-bench-") as scratch:
        folder, flags = Path(options.model), list(options.flags)
        if options.model in SHAPES:
            folder = make_model_folder(Path(scratch), options.model)
            copy_tokenizer(options.tokenizer, folder)
            flags = ["--load-format", "dummy", "--max-model-len", "4096", *flags]
        server = LocalServer(str(folder), flags, keep=False)
        try:
            return asyncio.run(_soak(server, options))
        finally:
            server.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="octavo bench soak", description=__doc__)
    parser.add_argument("--model", default="qwen3-0.6b-49k", help=f"one of {', '.join(SHAPES)}, or a folder")
    parser.add_argument("--tokenizer", type=Path, help="folder whose tokenizer a named shape gets")
    parser.add_argument("--num", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, default=300, help="requests that are open at once")
    parser.add_argument("--left", type=float, default=0.2, help="part of the requests that are left")
    parser.add_argument("--prompt-len", type=int, default=700, help="the most tokens of a prompt")
    parser.add_argument("--output-len", type=int, default=200, help="the most tokens of an answer")
    parser.add_argument("--vocab", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file for the figures")
    parser.add_argument("flags", nargs="*", help="behind --: flags of the server")
    return parser.parse_args()


async def _soak(server: LocalServer, options: argparse.Namespace) -> int:
    rng, tally, began = random.Random(options.seed), Tally(), time.perf_counter()
    free = asyncio.Semaphore(options.concurrency)
    readings: list[dict[str, int]] = []
    async with asyncio.TaskGroup() as clients:
        for index in range(options.num):
            await free.acquire()
            if index % max(options.num // _READINGS, 1) == 0:
                readings.append(await asyncio.to_thread(_memory, server))
                _say(f"{index} begun, {tally.done} done, {tally.left} left, {_shown(readings[-1])}")
            body = _body(rng, options)
            leave_after = rng.uniform(0.0, 0.5) if rng.random() < options.left else None
            client = clients.create_task(_client(server.info.url, body, leave_after, tally))
            client.add_done_callback(lambda _: free.release())
    readings.append(await asyncio.to_thread(_memory, server))
    seconds = time.perf_counter() - began
    _say(
        f"{options.num} requests in {seconds:.1f} s: {tally.done} done with {tally.num_tokens} tokens, "
        f"{tally.left} left, {len(tally.errors)} errors; {_shown(readings[-1])}"
    )
    for error in tally.errors[:5]:
        _say(error)
    grew = readings[-1]["device"] > _GROWTH * readings[1]["device"]
    if options.out:
        report = {"command": sys.argv, "seconds": seconds, "readings": readings, "errors": tally.errors}
        options.out.write_text(json.dumps(report | {"done": tally.done, "left": tally.left}, indent=1))
    return int(bool(tally.errors) or grew)


def _body(rng: random.Random, options: argparse.Namespace) -> dict[str, object]:
    return {
        "prompt": [rng.randrange(5, options.vocab) for _ in range(rng.randint(1, options.prompt_len))],
        "max_tokens": rng.randint(1, options.output_len),
        "ignore_eos": True,
        "temperature": rng.choice((0.0, 0.7, 1.0)),
        "top_p": rng.choice((1.0, 0.9)),
    }


async def _client(url: str, body: dict[str, object], leave_after: float | None, tally: Tally) -> None:
    try:
        async with asyncio.timeout(leave_after):
            answer = await complete(url, body)
    except TimeoutError:
        tally.left += 1
        return
    tally.num_tokens += answer.num_tokens
    if answer.error or answer.num_tokens != body["max_tokens"]:
        tally.errors.append(answer.error or f"{answer.num_tokens} tokens instead of {body['max_tokens']}")
    else:
        tally.done += 1


def _memory(server: LocalServer) -> dict[str, int]:
    """Bytes on the device, and those that each process holds."""
    return {"device": memory_used()} | {role: _resident(pid) for role, pid in server.info.processes.items()}


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


def _shown(reading: dict[str, int]) -> str:
    return "MiB: " + ", ".join(f"{name} {size >> 20}" for name, size in reading.items())


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
