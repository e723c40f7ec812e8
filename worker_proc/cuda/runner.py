"""Steps of a model on a CUDA device."""

import torch

from ...protocol.errors import ProtocolError
from ...protocol.lifecycle import KVGroup
from ...protocol.steps import StepPlan
from ..runner import Runner, StepOutput
from .rows import Intake, Staging
from .steps.computation import Computation
from .steps.drawing import Drawing
from .steps.queue import Queue
from .steps.results import Results

NUM_SLOTS = 4
"""Steps that may be in flight: host buffers come in rings of as many."""


class CudaRunner(Runner):
    """Takes plans, launches their steps, and hands out results as the device is done with them."""

    def __init__(
        self,
        *,
        kv_groups: tuple[KVGroup, ...],
        max_num_seqs: int,
        max_num_batched_tokens: int,
        vocab_size: int,
        intake: Intake,
        staging: Staging,
        drawing: Drawing,
        computation: Computation,
        queue: Queue,
        results: Results,
    ) -> None:
        self.kv_groups = kv_groups
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.vocab_size = vocab_size
        self.computation = computation
        self._intake = intake
        self._staging = staging
        self._drawing = drawing
        self._queue = queue
        self._results = results

    @torch.inference_mode()
    def submit(self, plan: StepPlan) -> None:
        if self._results.full:
            raise ProtocolError(f"step {plan.step} came while {NUM_SLOTS} steps are in flight")
        step = self._intake.take(plan)
        began = self._queue.mark()
        for new in plan.new:
            self._drawing.add(new)
        self._staging.send()
        if step.num_rows:
            self.computation.run_body(step)
        else:
            self.computation.update_rows()
        if len(step.sampled_rows):
            self._results.before_drawing()
            self.computation.run_head(step)
        self._results.add(step, dict(self._intake.faults), began)

    def collect(self) -> StepOutput | None:
        return self._results.collect()

    @torch.inference_mode()
    def idle(self) -> bool:
        """Capture one graph that later steps will want."""
        missing = self.computation.missing()
        if missing:
            self.computation.prepare(missing[0])
        return len(missing) > 1

    def forget(self) -> None:
        self._intake.forget()

    def execute(self, plan: StepPlan) -> StepOutput:
        self.submit(plan)
        while (output := self.collect()) is None:
            pass
        return output
