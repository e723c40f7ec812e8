"""Real processes: a scheduler, simulated workers, clients on its socket."""

import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from octavo.protocol import codec
from octavo.protocol.errors import ProtocolError
from octavo.protocol.ids import FinishReason
from octavo.protocol.replies import Accepted, Deltas, Rejected, Snapshot, Status, Story
from octavo.protocol.requests import Query
from octavo.scheduler_proc.journal import ReplayError, read_frames, replay
from octavo.scheduler_proc.outbox import MAX_UNSENT

from ..support.fake_scheduler import WorkerProcess, short_run_dir
from .server import SchedulerProcess, TestClient

pytestmark = pytest.mark.e2e


@dataclass
class Server:
    """What one test started, to be ended behind it."""

    run_dir: Path
    closing: list[SchedulerProcess | WorkerProcess | TestClient] = field(default_factory=list)

    def scheduler(self, **fields: object) -> SchedulerProcess:
        self.closing.append(process := SchedulerProcess(self.run_dir, **fields))
        return process

    def worker(self, sim: str = "groups=2,window=24,eos=2", **fields: object) -> WorkerProcess:
        settings = {"num_blocks": 64, "block_size": 16, "max_model_len": 512, "max_num_seqs": 8}
        sizes = {"vocab_size": 1000, "max_num_batched_tokens": 64}
        self.closing.append(process := WorkerProcess(self.run_dir, sim=sim, **(settings | sizes | fields)))
        return process

    def client(self, scheduler: SchedulerProcess) -> TestClient:
        self.closing.append(client := TestClient(scheduler.client_endpoint))
        return client


@pytest.fixture
def server() -> Iterator[Server]:
    with short_run_dir() as run_dir:
        started = Server(run_dir)
        yield started
        for each in reversed(started.closing):
            each.close()


def test_tokens_flow_and_sigterm_ends_all(server: Server) -> None:
    scheduler, worker = server.scheduler(), server.worker()
    client = server.client(scheduler)
    client.wait_ready()
    for number in range(12):
        client.submit(number, [5] * (number + 1) * 3, ignore_eos=True, max_tokens=20)
    client.wait_ended(*range(12))
    assert all(len(client.tokens[number, 0]) == 20 for number in range(12))
    assert set(client.finish.values()) == {FinishReason.LENGTH}
    client.send(Query(1))
    stats = client.expect(Snapshot).stats
    assert (stats.running, stats.waiting, stats.blocks_live) == (0, 0, 0)
    client.send(Query(2, "r3"))
    assert [entry.what for entry in client.expect(Story).entries][-1] == "finished"
    assert scheduler.stop() == 0
    assert worker.process.wait(20) == 0


def test_a_killed_worker_changes_no_text(server: Server) -> None:
    scheduler = server.scheduler(enable_prefix_caching=False)
    worker = server.worker(sim="groups=2,window=24,eos=2,kill_after=30")
    client = server.client(scheduler)
    client.wait_ready()
    for number in range(4):
        client.submit(number, [7, 8, 9] * (number + 1), ignore_eos=True, max_tokens=60)
    worker.wait()
    server.worker()
    while client.expect(Status).ready:
        pass  # an answer to an earlier question
    assert client.expect(Status).ready
    client.wait_ended(0, 1, 2, 3)
    for number in range(4):
        client.submit(10 + number, [7, 8, 9] * (number + 1), ignore_eos=True, max_tokens=60)
        client.wait_ended(10 + number)
        assert client.tokens[10 + number, 0] == client.tokens[number, 0]


def test_bad_frames_harm_nobody(server: Server) -> None:
    scheduler = server.scheduler()
    server.worker()
    client, hostile = server.client(scheduler), server.client(scheduler)
    for frame in (b"", b"\xff" * 40, b"\x93", b"{}", b"\x91\xa5Alive" * 2):
        hostile.socket.send(frame)
    hostile.socket.send_multipart([b"a", b"b", b"c"])
    client.wait_ready()
    client.submit(1, [1, 2000])
    assert client.expect(Rejected).kind == "InvalidRequestError"
    client.submit(2, [1, 2, 3], ignore_eos=True)
    assert client.expect(Accepted).request == 2
    client.wait_ended(2)


def test_a_journal_replays(server: Server) -> None:
    path = server.run_dir / "journal"
    scheduler = server.scheduler(journal=str(path))
    server.worker()
    client = server.client(scheduler)
    client.wait_ready()
    for number in range(6):
        client.submit(number, [5] * 40, n=2)
    client.wait_ended(*range(6))
    assert scheduler.stop() == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    done = replay(path)
    assert done.events > 20 and done.commands > 20

    frames = list(read_frames(path))
    del frames[len(frames) // 2]
    path.write_bytes(b"".join(len(frame).to_bytes(4, "little") + frame for frame in frames))
    with pytest.raises(ReplayError):
        replay(path)
    path.write_bytes(b"no journal")
    with pytest.raises(ProtocolError):
        replay(path)


def test_an_endpoint_that_cannot_be_bound_is_named(server: Server) -> None:
    scheduler = server.scheduler(worker_endpoint="ipc:///nowhere/at/all")
    assert scheduler.process.wait(20) != 0
    assert "ZMQError" in scheduler.error_file.read_text()


def test_a_client_that_asks_without_reading_is_dropped_alone(server: Server) -> None:
    scheduler = server.scheduler(validate=False)
    server.worker(sim="groups=2,window=24,eos=2,step_ms=50")
    client, greedy = server.client(scheduler), server.client(scheduler)
    client.wait_ready()
    greedy.wait_ready()
    greedy.submit(1, [1, 2, 3], max_tokens=500, ignore_eos=True)
    query = codec.encode(Query(1))
    # Twice the bound, beyond what two ZeroMQ queues of a thousand messages and the kernel hold.
    for _ in range(2 * MAX_UNSENT // 256 + 10_000):
        greedy.socket.send(query)
    client.submit(1, [1, 2, 3], max_tokens=4, ignore_eos=True)
    client.wait_ended(1)
    client.send(Query(2))
    while (stats := client.expect(Snapshot).stats).running:
        client.send(Query(2))
    assert stats.blocks_live == 0 and stats.generated_tokens < 500
    greedy.close()
    client.submit(2, [1, 2, 3], max_tokens=30, ignore_eos=True)
    client.wait_ended(2)


def test_the_clients_own_end_frees_its_rows(server: Server) -> None:
    scheduler = server.scheduler()
    server.worker(sim="groups=2,window=24,eos=2,step_ms=5")
    client, leaving = server.client(scheduler), server.client(scheduler)
    client.wait_ready()
    leaving.wait_ready()
    leaving.submit(1, [1, 2, 3], max_tokens=500, ignore_eos=True)
    leaving.expect(Deltas)
    leaving.close()
    began = time.monotonic()
    client.send(Query(1))
    while client.expect(Snapshot).stats.running:
        client.send(Query(1))
    assert time.monotonic() - began < 2
