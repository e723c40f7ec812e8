"""Plans in, results out, in order, the same for every device."""

import logging
import time

import zmq

from ..protocol.errors import ProtocolError
from ..protocol.steps import StepPlan, StepResult, Stop
from .link import SchedulerLink
from .runner import Runner
from .signals import StopSignal

_log = logging.getLogger(__name__)


class WorkerLoop:
    """Executes plans until told to stop. The next plan may wait in the socket while one is executed."""

    def __init__(self, link: SchedulerLink, runner: Runner, stop: StopSignal, poll_us: int = 0) -> None:
        self._link = link
        self._runner = runner
        self._stop = stop
        self._poll_seconds = poll_us / 1e6
        self._scheduler: int | None = None
        self._last_step = 0
        self._poller = zmq.Poller()
        for source in (link.socket, link.monitor, stop.readable):
            self._poller.register(source, zmq.POLLIN)

    def run(self) -> None:
        """Returns when the scheduler or SIGTERM says stop; an exception means that the device is lost."""
        while True:
            ready = dict(self._poller.poll())
            if self._stop.readable.fileno() in ready:
                return
            self._link.greet()
            if not self._drain():
                return

    def _drain(self) -> bool:
        """Execute what has arrived, and what arrives within the polling time after it; False to stop."""
        last = time.perf_counter()
        while True:
            message = self._link.receive()
            if isinstance(message, Stop):
                return False
            if message is not None:
                self._take(message)
                last = time.perf_counter()
            elif time.perf_counter() - last >= self._poll_seconds:
                return True

    def _take(self, plan: StepPlan) -> None:
        began = time.perf_counter()
        if plan.worker != self._link.incarnation:
            _log.warning("dropped step %d, meant for an earlier life of this worker", plan.step)
            return
        if plan.incarnation != self._scheduler:
            self._runner.forget()
            self._scheduler = plan.incarnation
        elif plan.step <= self._last_step:
            _log.warning("dropped step %d, older than %d", plan.step, self._last_step)
            return
        elif plan.step != self._last_step + 1:
            # Plans are diffs: without the missing one the rows here are not those the scheduler knows.
            raise ProtocolError(f"step {plan.step} came behind step {self._last_step}")
        self._last_step = plan.step
        output = self._runner.execute(plan)
        self._link.send(
            StepResult(
                incarnation=self._link.incarnation,
                step=plan.step,
                row=output.rows.tobytes(),
                token=output.tokens.tobytes(),
                device_ms=output.device_ms,
                host_ms=(time.perf_counter() - began) * 1e3,
                logprobs=output.logprobs,
                errors=output.errors,
            )
        )
