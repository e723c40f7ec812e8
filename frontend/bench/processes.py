"""A load sent by several processes, so that the client is not what is measured.

Each runs this module, takes every so many-th request of the shape, and writes its answers to a file.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from ..supervisor.python import python_environment, python_module
from .load import Report, Shape, make_bodies, make_report, send_all
from .stream import Answer

_START = 1.5  # seconds that the processes get to start and to make their requests


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one of the processes is asked to do."""

    url: str
    shape: Shape
    vocab: tuple[int, int]
    seed: int
    index: int
    count: int
    start: float  # in seconds of `time.time`, when the first request goes out
    output: str  # the file for its answers


class PartDone(msgspec.Struct, frozen=True):
    """What it answers."""

    ended: float  # in seconds of `time.time`
    answers: tuple[Answer, ...]


def run_processes(url: str, shape: Shape, *, processes: int, vocab: tuple[int, int], seed: int = 0) -> Report:
    """Send a shape's requests to the server at `url`. Raises RuntimeError when a process fails."""
    processes = min(processes, shape.concurrency, shape.num_requests)
    start = time.time() + _START
    with tempfile.TemporaryDirectory(prefix="octavo-load-") as folder:
        parts = [
            Part(
                url=url,
                shape=shape,
                vocab=vocab,
                seed=seed,
                index=index,
                count=processes,
                start=start,
                output=f"{folder}/{index}.json",
            )
            for index in range(processes)
        ]
        done = _run_all(parts)
    answers = [answer for part in done for answer in part.answers]
    return make_report(shape, answers, seconds=max(part.ended for part in done) - start)


def _run_all(parts: list[Part]) -> list[PartDone]:
    command, environment = python_module("frontend.bench.processes"), python_environment()
    children = [
        subprocess.Popen([*command, msgspec.json.encode(part).decode()], env=environment) for part in parts
    ]
    if any([child.wait() for child in children]):
        raise RuntimeError("a process of the load failed; what it wrote says why")
    return [msgspec.json.decode(Path(part.output).read_bytes(), type=PartDone) for part in parts]


async def _run(part: Part) -> PartDone:
    shape = part.shape
    bodies = make_bodies(shape, vocab=part.vocab, seed=part.seed)[part.index :: part.count]
    await asyncio.sleep(max(0.0, part.start - time.time()))
    answers = await send_all(
        part.url,
        bodies,
        concurrency=max(1, shape.concurrency // part.count),
        rate=shape.rate / part.count,
        seed=part.seed + part.index,
    )
    return PartDone(time.time(), tuple(answers))


def main() -> int:
    """Do the part that the only argument describes."""
    import uvloop

    part = msgspec.json.decode(sys.argv[1], type=Part)
    Path(part.output).write_bytes(msgspec.json.encode(uvloop.run(_run(part))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
