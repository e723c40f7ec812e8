"""A whole frontend for tests: real server, real client of the wire, a scripted scheduler, on threads."""

import asyncio
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvloop

from octavo.frontend.http.config import FrontendConfig
from octavo.frontend.http.frontend import Frontend
from octavo.frontend.text import Tokenizer
from octavo.protocol.lifecycle import ModelLimits
from octavo.protocol.requests import Submit

from .scripted_scheduler import ScriptedScheduler
from .waiting import wait_until

MODEL = "test-model"
MAX_MODEL_LEN = 256


class HttpFrontend:
    """A frontend under test.

    Attributes:
        url: where it listens. http: a client for it. scheduler: says what the model says.
        tokenizer: the model's.
    """

    def __init__(
        self,
        folder: Path,
        run_dir: Path,
        *,
        wait: bool,
        max_model_len: int = MAX_MODEL_LEN,
        **fields: object,
    ) -> None:
        self.tokenizer = Tokenizer.load(folder)
        limits = ModelLimits(
            model=MODEL,
            vocab_size=self.tokenizer.vocab_size,
            max_model_len=max_model_len,
            max_request_tokens=max_model_len,
            eos_token_ids=self.tokenizer.eos_token_ids,
        )
        endpoint = f"ipc://{run_dir}/clients"
        self.scheduler = ScriptedScheduler(endpoint, limits, script=lambda submit, index: ())
        self.reset()
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        settings = {
            "run_dir": str(run_dir),
            "scheduler_endpoint": endpoint,
            "lifeline_fd": -1,
            "parent_pid": os.getpid(),
            "listen_fds": (listener.detach(),),
            "model_path": str(folder),
            "served_names": (MODEL, "alias"),
            **fields,
        }
        self._config = FrontendConfig(**settings)  # type: ignore[arg-type]
        self.http = httpx.Client(base_url=self.url, timeout=10)
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="frontend")
        self._thread.start()
        assert self._started.wait(10)
        if wait:
            wait_until(lambda: self.http.get("/health").status_code == 200, within=10, what="it is ready")

    def reset(self) -> None:
        """Take back what the scheduler was told."""
        self.scheduler.reset()
        self.say("hello")

    def ids(self, text: str, *, eos: bool = True) -> list[int]:
        """Token ids of a text, with the end token behind them."""
        end = self.tokenizer.eos_token_ids[:1] if eos else ()
        return [*self.tokenizer.encode(text, add_special_tokens=False), *end]

    def say(self, *texts: str, eos: bool = True) -> None:
        """What the model says from now on: text c for choice c, the last for all further ones."""
        scripts = [self.ids(text, eos=eos) for text in texts]

        def script(submit: Submit, index: int) -> list[int]:
            return scripts[min(index, len(scripts) - 1)]

        self.scheduler.script = script

    def stop(self, *, at_once: bool = False) -> None:
        """As SIGTERM does, or SIGUSR1 with `at_once`: returns when it has ended."""
        if at_once:
            self._loop.call_soon_threadsafe(self._end_now.set)
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def close(self) -> None:
        self.http.close()
        if self._thread.is_alive():
            self.stop()
        self.scheduler.close()

    def _run(self) -> None:
        async def run() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            self._end_now = asyncio.Event()
            self.frontend = Frontend(self._config, None)
            self._started.set()
            await self.frontend.run(self._stop, self._end_now)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())


@contextmanager
def http_frontend(folder: Path, *, wait: bool = True, **fields: Any) -> Iterator[HttpFrontend]:
    """A frontend of the model in `folder`; `fields` are of its configuration, and `max_model_len`."""
    with tempfile.TemporaryDirectory(prefix="oct", dir="/tmp") as run_dir:
        frontend = HttpFrontend(folder, Path(run_dir), wait=wait, **fields)
        try:
            yield frontend
        finally:
            frontend.close()
