"""Results on their way to the host, and their form as a step's output."""

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ....kernels.reference import Logprobs
from ....protocol.replies import LogprobColumns
from ....protocol.steps import RowError
from ...logprob_columns import LogprobWriter
from ...runner import StepOutput
from ..rows.intake import HostStep
from .drawing import Drawing
from .queue import Mark, Queue

_NO_TOKEN = "the model gave no usable logits: NaN, infinity, or every token ruled out"


@dataclass(frozen=True, slots=True)
class _Flight:
    """A step that was launched."""

    step: HostStep
    faults: dict[int, str]
    slot: int
    began: Mark
    ended: Mark
    fetched: Mark


class Results:
    """A ring of host buffers, one for each step in flight."""

    def __init__(self, queue: Queue, drawing: Drawing, *, num_slots: int, pinned: bool) -> None:
        self._queue = queue
        self._drawing = drawing
        self._flights: deque[_Flight] = deque()
        self._tokens = [_host_like(drawing.tokens, pinned) for _ in range(num_slots)]
        self._logprobs = [
            Logprobs(*(_host_like(tensor, pinned) for tensor in drawing.logprobs)) for _ in range(num_slots)
        ]
        self._next = 0

    def __len__(self) -> int:
        return len(self._flights)

    @property
    def full(self) -> bool:
        """Whether the oldest step must be collected before another may be launched."""
        return len(self._flights) == len(self._tokens)

    def before_drawing(self) -> None:
        """Let the device not overwrite what the last step drew before it has been copied."""
        if self._flights:
            self._queue.wait(self._flights[-1].fetched)

    def add(self, step: HostStep, faults: dict[int, str], began: Mark) -> None:
        """A step was launched: copy what it draws when it is done."""
        ended = self._queue.mark()
        lines = len(step.sampled_rows)
        copies = [(self._drawing.tokens[:lines], self._tokens[self._next][:lines])]
        if (step.num_logprobs >= 0).any():
            pairs = zip(self._drawing.logprobs, self._logprobs[self._next], strict=True)
            copies += [(source[:lines], target[:lines]) for source, target in pairs]
        fetched = self._queue.fetch(copies, behind=ended) if lines else ended
        self._flights.append(_Flight(step, faults, self._next, began, ended, fetched))
        self._next = (self._next + 1) % len(self._tokens)

    def collect(self) -> StepOutput | None:
        """The output of the oldest step, None while it is under way or when there is none."""
        if not self._flights or not self._flights[0].fetched.passed():
            return None
        flight = self._flights.popleft()
        step = flight.step
        tokens = self._tokens[flight.slot].numpy()[: len(step.sampled_rows)]
        errors = dict.fromkeys(step.sampled_rows[tokens < 0].tolist(), _NO_TOKEN)
        errors |= {row: flight.faults[row] for row in step.sampled_rows.tolist() if row in flight.faults}
        usable = ~np.isin(step.sampled_rows, list(errors)) if errors else tokens >= 0
        return StepOutput(
            rows=step.sampled_rows[usable].astype(np.int32),
            tokens=tokens[usable].astype(np.int32),
            device_ms=flight.ended.since(flight.began),
            logprobs=self._logprob_columns(flight, usable),
            errors=tuple(RowError(row, message) for row, message in errors.items()),
        )

    def _logprob_columns(self, flight: _Flight, usable: np.ndarray) -> LogprobColumns | None:
        asked = flight.step.num_logprobs
        if not (asked >= 0).any():
            return None
        tokens = self._tokens[flight.slot]
        chosen, ranks, top, top_ids = (x.tolist() for x in self._logprobs[flight.slot])
        writer = LogprobWriter()
        for line in usable.nonzero()[0].tolist():
            k = int(asked[line])
            if k < 0:
                writer.skip()
            else:
                writer.add(int(tokens[line]), chosen[line], ranks[line], top_ids[line][:k], top[line][:k])
        return writer.columns()


def _host_like(tensor: Tensor, pinned: bool) -> Tensor:
    return torch.zeros(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)
