"""Steps of a model on the CPU."""

import time

import numpy as np
import torch

from ...protocol.config import WorkerConfig
from ...protocol.steps import RowError, RowPromptLogprobs, StepPlan
from ..models import Decoder
from ..parallel import ALONE, Ranks
from ..rows import RowTable, StepInputs
from ..runner import ImmediateRunner, StepOutput
from ..sampling import Drawn, PromptReader, Sampler
from .attention import CpuAttention

_NO_TOKEN = "the model gave no usable logits: NaN, infinity, or every token ruled out"
_NOTHING = Drawn(np.zeros(0, np.int64), None, {})


class CpuRunner(ImmediateRunner):
    """Rows, model, KV cache and sampler."""

    def __init__(
        self, config: WorkerConfig, model: Decoder, attention: CpuAttention, ranks: Ranks = ALONE
    ) -> None:
        super().__init__()
        self._ranks = ranks
        self.kv_groups = attention.groups
        self.max_num_seqs = config.max_num_seqs
        self.max_num_batched_tokens = config.max_num_batched_tokens
        self.vocab_size = model.config.vocab_size
        self._model = model
        self._attention = attention
        self._table = RowTable(config.max_num_seqs, config.max_model_len, self.kv_groups)
        self._sampler = Sampler(
            self._table, self.vocab_size, config.eos_token_ids, tokenizer_path=config.tokenizer_path
        )
        self._prompts = PromptReader(self._table)

    def forget(self) -> None:
        for row in self._table.taken():
            self._sampler.release(row)
        self._table.forget()

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepOutput:
        began = time.perf_counter()
        self._ranks.meet(plan.incarnation, plan.step)
        self._apply(plan)
        inputs = self._table.inputs(plan)
        rows = inputs.sampled_rows
        drawn, prompts = self._compute(inputs) if len(inputs.rows) else (_NOTHING, ())
        # A row without a token goes on with token 0, so that a plan that was sent ahead still fits it.
        self._table.append_tokens(rows, np.maximum(drawn.tokens, 0))
        usable = drawn.tokens >= 0
        return StepOutput(
            rows=rows[usable].astype(np.int32),
            tokens=drawn.tokens[usable].astype(np.int32),
            device_ms=(time.perf_counter() - began) * 1e3,
            logprobs=drawn.logprobs,
            errors=tuple(drawn.errors.get(row, RowError(row, _NO_TOKEN)) for row in rows[~usable].tolist()),
            prompt_logprobs=prompts,
        )

    def _apply(self, plan: StepPlan) -> None:
        released = np.frombuffer(plan.released, np.int32).tolist()
        self._table.release(released)
        for row in released:
            self._sampler.release(row)
        for new in plan.new:
            self._table.add(new)
            self._sampler.add(new)
            self._prompts.add(new)
        self._table.append_blocks(plan)

    def _compute(self, inputs: StepInputs) -> tuple[Drawn, tuple[RowPromptLogprobs, ...]]:
        step = self._attention.begin(inputs, self._table)
        out, residual = self._model.body(torch.from_numpy(inputs.token_ids), step)

        def logits(at: torch.Tensor) -> torch.Tensor:
            return self._model.logits(self._model.hidden(out[at], residual[at]))

        prompts = self._prompts.read(inputs, logits)
        if not len(inputs.sampled):
            return _NOTHING, prompts
        return self._draw(logits(torch.from_numpy(inputs.last)), inputs), prompts

    def _draw(self, logits: torch.Tensor, inputs: StepInputs) -> Drawn:
        """The leading rank draws, and all go on with the same tokens."""
        if self._ranks.leads:
            drawn = self._sampler.sample(logits, inputs.sampled_rows, inputs.draw_positions)
        else:
            drawn = Drawn(np.zeros(len(inputs.sampled_rows), np.int64), None, {})
        return drawn._replace(tokens=self._ranks.agree(drawn.tokens))
