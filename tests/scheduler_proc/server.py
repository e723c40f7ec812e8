"""A real scheduler process with real simulated workers, and a client of its socket."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import zmq

from octavo.protocol import channels, codec
from octavo.protocol.base import Message
from octavo.protocol.columns import pack_i32, unpack_i32, unpack_i64
from octavo.protocol.config import SchedulerConfig, save_config
from octavo.protocol.ids import FinishReason, new_client
from octavo.protocol.lifeline import Lifeline
from octavo.protocol.replies import Deltas, SchedulerReply, Status, Welcome
from octavo.protocol.requests import Alive, ClientHello, Submit
from octavo.protocol.sampling import SamplingParams

from ..support.fake_scheduler import WorkerProcess

M = TypeVar("M", bound=Message)
_PATIENCE_MS = 30_000


class SchedulerProcess:
    """`python -m octavo.scheduler_proc`, ended with its lifeline."""

    def __init__(self, run_dir: Path, **fields: object) -> None:
        self.lifeline = Lifeline()
        self.client_endpoint = f"ipc://{run_dir}/clients"
        settings: dict[str, object] = {
            "run_dir": str(run_dir),
            "client_endpoint": self.client_endpoint,
            "worker_endpoint": f"ipc://{run_dir}/workers",
            "lifeline_fd": self.lifeline.read_fd,
            "parent_pid": os.getpid(),
            "model": "sim",
            "vocab_size": 1000,
            "max_model_len": 512,
            "eos_token_ids": (2,),
            "max_num_seqs": 8,
            "max_num_batched_tokens": 64,
            "validate": True,
        }
        self.config = SchedulerConfig(**(settings | fields))  # type: ignore[arg-type]
        path = run_dir / "scheduler.json"
        save_config(self.config, path)
        self.error_file = path.with_suffix(".error")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "octavo.scheduler_proc", str(path)],
            pass_fds=[self.lifeline.read_fd],
            start_new_session=True,
        )

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def close(self) -> None:
        self.lifeline.cut()
        self.process.wait(20)


class TestClient:
    """A program that speaks to the scheduler."""

    __test__ = False

    def __init__(self, endpoint: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.identity = new_client()
        self.socket = channels.new_dealer(self._context, self.identity, endpoint)
        self.socket.connect(endpoint)
        self._decoder = codec.reply_decoder()
        self.tokens: dict[tuple[int, int], list[int]] = {}  # by request and choice
        self.finish: dict[tuple[int, int], FinishReason] = {}

    def send(self, message: Message) -> None:
        assert channels.send(self.socket, codec.encode(message)) is channels.Sent.OK

    def receive(self) -> SchedulerReply:
        assert self.socket.poll(_PATIENCE_MS), "the scheduler says nothing"
        message = self._decoder.decode(self.socket.recv())
        if isinstance(message, Deltas):
            self._take(message)
        return message

    def expect(self, kind: type[M]) -> M:
        """The next message of this kind; others are taken on the way."""
        while not isinstance(message := self.receive(), kind):
            pass
        return message

    def wait_ready(self) -> None:
        self.send(ClientHello(codec.FINGERPRINT, "test"))
        ready = self.expect(Welcome).ready
        while not ready:
            ready = self.expect(Status).ready

    def alive(self) -> None:
        self.send(Alive())

    def submit(self, number: int, prompt: list[int], **params: object) -> None:
        sampling = SamplingParams(**({"max_tokens": 16} | params))  # type: ignore[arg-type]
        self.tokens |= {(number, choice): [] for choice in range(sampling.n)}
        self.send(
            Submit(
                request=number, attempt=0, name=f"r{number}", prompt=pack_i32(prompt), params=sampling, seed=7
            )
        )

    def wait_ended(self, *numbers: int) -> None:
        while any(key not in self.finish for key in self.tokens if key[0] in numbers):
            self.receive()

    def close(self) -> None:
        self._context.destroy(0)

    def _take(self, deltas: Deltas) -> None:
        tokens = unpack_i32(deltas.tokens).tolist()
        columns = (deltas.choice, deltas.start, deltas.count, deltas.finish)
        lines = zip(unpack_i64(deltas.request), *(unpack_i32(column) for column in columns), strict=True)
        for request, choice, start, count, finish in lines:
            assert start == len(self.tokens[request, choice])
            self.tokens[request, choice] += tokens[:count]
            tokens = tokens[count:]
            if finish:
                self.finish[request, choice] = FinishReason(finish)


__all__ = ["SchedulerProcess", "TestClient", "WorkerProcess"]
