"""The scheduler's end of a worker's wire, and a worker process that talks to it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import zmq

from octavo.protocol import channels, codec
from octavo.protocol.base import Message
from octavo.protocol.config import WorkerConfig, save_config
from octavo.protocol.lifecycle import WorkerProgress, WorkerReady
from octavo.protocol.lifeline import Lifeline
from octavo.protocol.steps import StepPlan, StepResult, WorkerMessage
from octavo.worker_proc.runner import StepOutput

M = TypeVar("M", bound=Message)

WORKER = b"w0.0"
_PATIENCE_MS = 60_000


class FakeScheduler:
    """A ROUTER bound where workers connect. `close` and a new one stand for a restart."""

    def __init__(self, run_dir: Path) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = channels.bind_router(self._context, endpoint(run_dir))
        self._decoder = codec.worker_decoder()

    def receive(self) -> WorkerMessage:
        """The next message of the worker."""
        assert self._socket.poll(_PATIENCE_MS), "the worker says nothing"
        identity, frame = self._socket.recv_multipart()
        assert identity == WORKER
        return self._decoder.decode(frame)

    def expect(self, kind: type[M]) -> M:
        """The next message, which is of this kind once reports of progress are left out."""
        message = self.receive()
        while isinstance(message, WorkerProgress) and kind is not WorkerProgress:
            message = self.receive()
        assert isinstance(message, kind), message
        return message

    def send(self, message: Message) -> None:
        self.send_frame(codec.encode(message))

    def send_frame(self, frame: bytes) -> None:
        assert channels.send_to(self._socket, WORKER, frame) is channels.Sent.OK

    def close(self) -> None:
        self._context.destroy(0)


def endpoint(run_dir: Path) -> str:
    return f"ipc://{run_dir}/workers"


@contextmanager
def short_run_dir() -> Iterator[Path]:
    """A run directory whose path leaves room for socket names."""
    with tempfile.TemporaryDirectory(prefix="oct", dir="/tmp") as name:
        yield Path(name)


class WorkerProcess:
    """A real worker process, ended with its lifeline."""

    def __init__(self, run_dir: Path, **fields: object) -> None:
        self.lifeline = Lifeline()
        settings = {
            "run_dir": str(run_dir),
            "scheduler_endpoint": endpoint(run_dir),
            "lifeline_fd": self.lifeline.read_fd,
            "parent_pid": os.getpid(),
            "device": "sim",
            "model_path": "",
            "vocab_size": 1000,
            "eos_token_ids": (),
            "max_model_len": 512,
            "max_num_seqs": 8,
            "num_blocks": 64,
        } | fields
        config = run_dir / "worker-0-0.json"
        save_config(WorkerConfig(**settings), config)  # type: ignore[arg-type]
        self.error_file = run_dir / "worker-0-0.error"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "octavo.worker_proc", str(config)],
            pass_fds=[self.lifeline.read_fd],
            start_new_session=True,
        )

    def wait(self) -> int:
        """Its exit status."""
        return self.process.wait(timeout=60)

    def close(self) -> None:
        self.lifeline.cut()
        self.wait()


class PlanTarget:
    """Stands where a `Driver` expects a runner, and sends its plans to a worker process."""

    def __init__(self, scheduler: FakeScheduler, ready: WorkerReady) -> None:
        self.kv_groups = ready.kv_groups
        self.max_num_seqs = ready.max_num_seqs
        self.max_num_batched_tokens = ready.max_num_batched_tokens
        self.vocab_size = ready.vocab_size
        self._scheduler = scheduler

    def forget(self) -> None:
        raise NotImplementedError("a new scheduler makes the worker forget")

    def execute(self, plan: StepPlan) -> StepOutput:

        self._scheduler.send(plan)
        result = self._scheduler.expect(StepResult)
        return StepOutput(
            np.frombuffer(result.row, np.int32),
            np.frombuffer(result.token, np.int32),
            result.device_ms,
            result.logprobs,
            result.errors,
        )
