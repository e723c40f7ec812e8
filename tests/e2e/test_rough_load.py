"""All rough clients at once: health answers, and other streams keep their pace."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from urllib.parse import urlsplit

import pytest

from octavo.tests.support.demo import demo_model
from octavo.tests.support.processes import child
from octavo.tests.support.server import start_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

STEP_MS = 20
WITNESSES = 8


@dataclass
class Seen:
    """What a well-behaved client saw, in seconds."""

    health: list[float] = field(default_factory=list)  # each answer's time
    paces: list[float] = field(default_factory=list)  # of each stream, between tokens, in the mean
    gaps: list[float] = field(default_factory=list)  # between reads of a stream

    def __str__(self) -> str:
        return (
            f"health p50 {at(self.health, 50) * 1e3:.1f} p99 {at(self.health, 99) * 1e3:.1f} ms of "
            f"{len(self.health)}, pace {max(self.paces) * 1e3:.1f} ms, "
            f"gaps p99 {at(self.gaps, 99) * 1e3:.1f} ms"
        )


def at(values: list[float], percent: float) -> float:
    """A percentile."""
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


async def probe(url: str, seen: Seen, going: Callable[[], bool]) -> None:
    """Ask for health every 20 ms, on one connection."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    while going():
        began = time.perf_counter()
        writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
        seen.health.append(time.perf_counter() - began)
        await asyncio.sleep(0.02)
    writer.close()


async def witness(url: str, seen: Seen, tokens: int) -> None:
    """Read one stream."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    body = json.dumps({"prompt": "x", "max_tokens": tokens, "ignore_eos": True, "stream": True}).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
    )
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    await reader.readuntil(b"data: ")
    times, last = [time.perf_counter()], b""
    while part := await reader.read(1 << 16):
        times.append(time.perf_counter())
        last = (last + part)[-64:]
    assert b"data: [DONE]" in last
    seen.paces.append((times[-1] - times[0]) / (tokens - 1))
    seen.gaps += [after - before for before, after in pairwise(times)]
    writer.close()


def look(url: str, tokens: int) -> Seen:
    """What a well-behaved client sees while its streams run."""
    seen = Seen()

    async def run() -> None:
        streams = asyncio.gather(*(witness(url, seen, tokens) for _ in range(WITNESSES)))
        await asyncio.gather(streams, probe(url, seen, lambda: not streams.done()))

    asyncio.run(run())
    return seen


@pytest.mark.parametrize(
    ("half_open", "floods", "slow", "large_bytes", "tokens", "health_p99"),
    [
        (100, 2, 4, 500_000, 50, 3.0),
        pytest.param(1000, 8, 64, 5_000_000, 500, 0.1, marks=pytest.mark.full),
    ],
    ids=["short", "full"],
)
def test_rough_clients_all_at_once(
    half_open: int, floods: int, slow: int, large_bytes: int, tokens: int, health_p99: float
) -> None:
    rough = [sys.executable, "-m", "octavo.tests.support.rough_clients"]
    sizes = [str(size) for size in (half_open, floods, slow, large_bytes)]
    flags = ("--device", "sim", "--sim", f"step_ms={STEP_MS},vocab=40000", "--api-server-count", "1")
    with start_server(demo_model(), *flags) as server:
        alone = look(server.url, tokens)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with child([*rough, server.url, *sizes], **pipes) as clients:
            assert clients.stdout is not None and clients.stdout.readline() == b"ready\n"
            beside = look(server.url, tokens)
            answers = json.loads(clients.communicate()[0])
    print(f"alone: {alone}\nbeside: {beside}\n{answers}")
    assert answers["nonsense 400"] >= floods
    assert answers["/v1/completions 400"]
    assert answers["slow reads"]
    assert not any(name.rpartition(" ")[2].startswith("5") for name in answers)
    assert at(beside.health, 99) <= health_p99
    if health_p99 < 1:
        assert max(beside.paces) < 1.25 * max(alone.paces)
