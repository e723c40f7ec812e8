"""Plans in, results out, in order, the same for every device."""

import logging
import time
from collections import deque
from dataclasses import dataclass

import zmq

from ..protocol.errors import ProtocolError
from ..protocol.steps import StepPlan, StepResult, Stop
from ..protocol.stop_signal import StopSignal
from .link import SchedulerLink
from .runner import Runner, StepOutput

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Flight:
    """A step that the device has and whose result has not been sent."""

    step: int
    began: float


class WorkerLoop:
    """Executes plans until told to stop.

    A plan is submitted when it arrives, also while the device is at the one before it: then the device goes
    from step to step without waiting for this loop. While steps are in flight the loop does not sleep, since
    it waits for both a message and the device.
    """

    def __init__(self, link: SchedulerLink, runner: Runner, stop: StopSignal, poll_us: int = 0) -> None:
        self._link = link
        self._runner = runner
        self._stop = stop
        self._poll_seconds = poll_us / 1e6
        self._scheduler: int | None = None
        self._last_step = 0
        self._flights: deque[_Flight] = deque()
        self._poller = zmq.Poller()
        for source in (link.socket, link.monitor, stop.readable):
            self._poller.register(source, zmq.POLLIN)

    def run(self) -> None:
        """Returns when the scheduler or SIGTERM says stop; an exception means that the device is lost."""
        while not self._stop.asked:
            while not self._poller.poll(0) and self._runner.idle():
                pass
            ready = dict(self._poller.poll())
            if self._stop.readable.fileno() in ready:
                return
            if self._link.greet():
                self._discard()
            if not self._drain():
                return

    def _drain(self) -> bool:
        """Execute what has arrived, and what arrives within the polling time after it; False to stop."""
        last = time.perf_counter()
        while not self._stop.asked:
            message = self._link.receive()
            if isinstance(message, Stop):
                break
            if message is not None:
                self._take(message)
            if self._answer() or message is not None:
                last = time.perf_counter()
            elif not self._flights and time.perf_counter() - last >= self._poll_seconds:
                return True
        self._finish()
        return False

    def _take(self, plan: StepPlan) -> None:
        began = time.perf_counter()
        if plan.worker != self._link.incarnation:
            _log.warning("dropped step %d, meant for an earlier life of this worker", plan.step)
            return
        if plan.incarnation != self._scheduler:
            self._discard()
            self._runner.forget()
            self._scheduler = plan.incarnation
        elif plan.step <= self._last_step:
            _log.warning("dropped step %d, older than %d", plan.step, self._last_step)
            return
        elif plan.step != self._last_step + 1:
            # Plans are diffs: without the missing one the rows here are not those the scheduler knows.
            raise ProtocolError(f"step {plan.step} came behind step {self._last_step}")
        self._last_step = plan.step
        self._runner.submit(plan)
        self._flights.append(_Flight(plan.step, began))

    def _answer(self) -> bool:
        """Send the oldest step's result if the device has it."""
        output = self._runner.collect() if self._flights else None
        if output is None:
            return False
        self._send(self._flights.popleft(), output)
        return True

    def _finish(self) -> None:
        """Wait for all steps in flight and send their results."""
        while self._flights:
            self._answer()

    def _discard(self) -> None:
        """Wait for all steps in flight. Their scheduler is gone, and numbers of another mean other steps."""
        while self._flights:
            if self._runner.collect() is not None:
                self._flights.popleft()

    def _send(self, flight: _Flight, output: StepOutput) -> None:
        self._link.send(
            StepResult(
                incarnation=self._link.incarnation,
                step=flight.step,
                row=output.rows.tobytes(),
                token=output.tokens.tobytes(),
                device_ms=output.device_ms,
                host_ms=(time.perf_counter() - flight.began) * 1e3,
                logprobs=output.logprobs,
                errors=output.errors,
                prompt_logprobs=output.prompt_logprobs,
            )
        )
