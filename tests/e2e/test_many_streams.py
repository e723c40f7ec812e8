"""Thousands of open streams that their clients do not read."""

import asyncio
import json
import resource
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from octavo.tests.support.demo import demo_model
from octavo.tests.support.server import start_server
from octavo.tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.timeout(600)]

STREAMS = 5000
BODY = {"prompt": "x", "max_tokens": 8_000, "ignore_eos": True, "stream": True}


async def open_streams(url: str, count: int) -> list[asyncio.StreamWriter]:
    """Ask for so many streams, and read the heads of the answers alone."""
    parts = urlsplit(url)
    content = json.dumps(BODY).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    writers = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=4096)
        writer.write(head.encode() + content)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writers.append(writer)
    return writers


def test_five_thousand_streams_fit_into_a_gigabyte() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    flags = ("--device", "sim", "--sim", "step_ms=5,vocab=40000", "--api-server-count", "1")
    with start_server(
        demo_model(), *flags, "--max-queued-requests", "0", "--max-queued-tokens", "0"
    ) as server:
        frontend = psutil.Process(server.state()["processes"]["frontend-0"])
        base = frontend.memory_info().rss

        def generated() -> int:
            engine: dict[str, int] = httpx.get(f"{server.url}/status", timeout=30).json()["engine"]
            return engine["generated_tokens"]

        async def open_all() -> None:
            writers = await open_streams(server.url, STREAMS)
            # Streams that run fill what may be kept for them, and go on.
            await asyncio.to_thread(wait_until, lambda: generated() > 256 * 1000, within=200, what="they run")
            rss = frontend.memory_info().rss
            print(f"{rss / 1e6:.0f} MB, {(rss - base) / STREAMS / 1e3:.1f} kB a stream")
            assert rss < 1e9
            for writer in writers:
                writer.transport.abort()

        asyncio.run(open_all())
