"""Many streams at once: no error, no leaked block, flat memory."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from octavo.tests.support.client import Client
from octavo.tests.support.demo import demo_model
from octavo.tests.support.server import Server, start_server
from octavo.tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e


def memory(server: Server) -> dict[str, int]:
    """Resident bytes of each process of the server."""
    return {role: psutil.Process(pid).memory_info().rss for role, pid in server.pids().items()}


def load(server: Server, streams: int, seconds: float) -> int:
    """Keep `streams` streams open for `seconds`; returns how many were answered."""
    end = time.monotonic() + seconds

    def one(seed: int) -> int:
        rng = random.Random(seed)
        client = Client(server.url, timeout=120)
        answered = 0
        while time.monotonic() < end:
            prompt = [rng.randrange(5, 40000) for _ in range(rng.randrange(4, 60))]
            max_tokens = rng.randrange(8, 40)
            stream = client.stream(prompt, max_tokens=max_tokens, ignore_eos=True, temperature=1)
            assert stream.errors == []
            assert stream.finish == {0: ["length"]}
            assert stream.done
            answered += 1
        client.close()
        return answered

    with ThreadPoolExecutor(streams) as pool:
        return sum(pool.map(one, range(streams)))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("streams", "seconds", "blocks"),
    [(16, 15.0, 128), pytest.param(64, 120.0, 512, marks=pytest.mark.full)],
    ids=["short", "full"],
)
def test_streams_leave_nothing_behind(streams: int, seconds: float, blocks: int) -> None:
    # Few blocks: the cache takes memory when a block is first written, and all are by the second load.
    pool = ("--num-gpu-blocks-override", str(blocks))
    with start_server(demo_model(), "--device", "cpu", *pool) as server, Client(server.url) as client:
        load(server, streams, seconds)
        before = memory(server)
        assert load(server, streams, seconds) >= streams
        after = memory(server)
        wait_until(
            lambda: client.metric("octavo_kv_blocks", state="live") == 0, within=5, what="no block is live"
        )
        for role, size in after.items():
            # The matrix library keeps a kernel for each number of tokens, and meets new ones for minutes.
            most = 1.2 if role.startswith("worker") else 1.05
            assert size <= before[role] * most + (8 << 20), f"{role} grew from {before[role]} to {size} bytes"
