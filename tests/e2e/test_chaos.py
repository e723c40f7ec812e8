"""All that may happen to a server, in random order, while streams run: each has the text it should have."""

import random
import re
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.tests.support.background import BackgroundStream
from octavo.tests.support.demo import demo_model
from octavo.tests.support.models import make_ctx_model
from octavo.tests.support.server import Server, start_server
from octavo.tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

PATIENCE = 300.0  # seconds for one stream, restarts included
BACK_WITHIN = 120.0
FRONTENDS = ("frontend-0", "frontend-1")

FLAGS = ("--api-server-count", "2", "--journal", "/dev/full")

Body = dict[str, Any]


@dataclass
class Load:
    """Streams that follow each other on some threads, and what went wrong with them."""

    url: str
    bodies: list[Body]
    texts: list[str]  # of the bodies, undisturbed
    killed: list[float] = field(default_factory=list)  # when a frontend was killed
    complete: int = 0
    broken: int = 0
    wrong: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self, at: int) -> None:
        """One stream after the other, until told to stop."""
        while not self.stop.is_set():
            at = (at + 1) % len(self.bodies)
            began = time.monotonic()
            stream = BackgroundStream(self.url, self.bodies[at], PATIENCE)
            stream.join(PATIENCE)
            if stream.complete and stream.text == self.texts[at]:
                self.complete += 1
                continue
            if stream.refused == 503:
                self.stop.wait(0.1)  # before it was accepted: clients try again
                continue
            alike = self.texts[at].startswith(stream.text)
            if alike and stream.broken and any(began <= killed for killed in self.killed):
                self.broken += 1
            else:
                self.wrong.append(f"body {at}: {stream}, text {'begins alike' if alike else 'differs'}")


def health(url: str) -> int:
    try:
        return httpx.get(f"{url}/health", timeout=10).status_code
    except httpx.HTTPError:
        return 0


def gauges(url: str) -> dict[str, float]:
    page = httpx.get(f"{url}/metrics", timeout=10).text
    names = r'octavo_(?:kv_blocks\{state="live"\}|num_requests_\w+|journal_active)'
    return {name: float(value) for name, value in re.findall(rf"^({names}) (\S+)$", page, re.MULTILINE)}


def harm(server: Server, what: str, load: Load) -> None:
    """Do one thing to the server, and wait until it is over it."""
    role, _, how = what.partition(":")
    before = server.pids()[role]
    if role in FRONTENDS:
        load.killed.append(time.monotonic())
    server.kill(role, signal.SIGSTOP if how == "stop" else signal.SIGKILL)
    wait_until(lambda: server.pids()[role] != before, within=BACK_WITHIN, what=f"{what}: another process")
    wait_until(lambda: health(server.url) == 200, within=BACK_WITHIN, what=f"{what}: /health")
    if role in FRONTENDS:
        load.killed.append(time.monotonic())


def chaos(server: Server, bodies: list[Body], *, streams: int, things: list[str], pauses: float) -> None:
    """Run `streams` at once while these things happen, so many seconds apart at most."""
    chance = random.Random(7)
    undisturbed = [BackgroundStream(server.url, body, PATIENCE) for body in bodies]
    for stream in undisturbed:
        stream.join(PATIENCE)
        assert stream.complete, stream
    load = Load(server.url, bodies, [stream.text for stream in undisturbed])
    threads = [threading.Thread(target=load.run, args=(at,), daemon=True) for at in range(streams)]
    for thread in threads:
        thread.start()
    try:
        for what in things:
            load.stop.wait(chance.uniform(0.2, pauses))
            harm(server, what, load)
    finally:
        load.stop.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert not load.wrong, f"{load.wrong[:3]}\n{server.log[-5000:]}"
    assert load.complete >= streams
    # A frontend that was killed left requests behind: the scheduler ends them when it notices.
    wait_until(lambda: not any(gauges(server.url).values()), within=40, what="all gauges are back at 0")


@pytest.fixture(scope="module")
def ctx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ctx_model(tmp_path_factory.mktemp("ctx"))


def bodies_of(count: int, max_tokens: int) -> list[Body]:
    """Prompts of many lengths, greedy and seeded."""
    return [
        {
            "prompt": [10 + at] * (1 + 7 * at),
            "max_tokens": max_tokens + 5 * at,
            "ignore_eos": True,
            "temperature": 0.8 * (at % 2),
            "seed": at,
        }
        for at in range(count)
    ]


def test_o57_everything_happens_to_a_simulated_device(ctx: Path) -> None:
    things = [
        "worker-0-0",
        "frontend-0",
        "scheduler",
        "worker-0-0:stop",
        "frontend-1",
        "scheduler",
        "worker-0-0",
    ]
    with start_server(ctx, "--device", "sim", "--sim", "step_ms=4,groups=2", *FLAGS) as server:
        chaos(server, bodies_of(8, 150), streams=8, things=things, pauses=1.0)


@pytest.mark.full
def test_o57_everything_happens_to_the_demo_model_for_ten_minutes() -> None:
    chance = random.Random(3)
    kinds = ["worker-0-0", "scheduler", "worker-0-0:stop", *FRONTENDS]
    things = [thing for _ in range(8) for thing in chance.sample(kinds, len(kinds))]
    with start_server(demo_model(), "--device", "cpu", "--dtype", "float32", *FLAGS) as server:
        chaos(server, bodies_of(16, 40), streams=32, things=things, pauses=10.0)
