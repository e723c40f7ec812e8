"""Steps of the simulated device."""

import os
import signal
import time

import numpy as np

from ...protocol.config import WorkerConfig
from ...protocol.lifecycle import KVGroup
from ...protocol.sampling import SamplingParams
from ...protocol.steps import NewRow, RowError, StepPlan
from ..logprob_columns import LogprobWriter
from ..rows import Int64s, RowTable, StepInputs
from ..runner import ImmediateRunner, StepOutput
from .options import SimOptions
from .shadow_kv import ShadowKV, UInt64s, mix


class SimulatedFaultError(Exception):
    """The device fails because it was told to."""


class SimRunner(ImmediateRunner):
    """Rows and shadow KV, and faults at the steps they were asked for."""

    def __init__(self, config: WorkerConfig, options: SimOptions, groups: tuple[KVGroup, ...]) -> None:
        super().__init__()
        self.kv_groups = groups
        self.max_num_seqs = config.max_num_seqs
        self.max_num_batched_tokens = config.max_num_batched_tokens
        self.vocab_size = options.vocab or config.vocab_size
        self._options = options
        self._table = RowTable(config.max_num_seqs, config.max_model_len, groups)
        self._kv = ShadowKV(self._table)
        self._params: dict[int, SamplingParams] = {}
        self._seed = np.zeros(config.max_num_seqs, np.uint64)
        self._choice = np.zeros(config.max_num_seqs, np.uint64)
        self._warm = np.zeros(config.max_num_seqs, np.bool_)
        self._min_end = np.zeros(config.max_num_seqs, np.int64)
        self._needs_model = np.zeros(config.max_num_seqs, np.bool_)
        self._num_steps = 0
        self._num_drawn = 0

    def forget(self) -> None:
        self._table.forget()
        self._params.clear()

    def execute(self, plan: StepPlan) -> StepOutput:
        began = time.perf_counter()
        self._num_steps += 1
        self._apply(plan)
        inputs = self._table.inputs(plan)
        self._break_down(inputs)
        self._kv.write(inputs)
        tokens = self._draw(inputs)
        self._table.append_tokens(inputs.sampled_rows, tokens)
        self._take_time(began, inputs)
        output = self._output(inputs.sampled_rows, tokens, (time.perf_counter() - began) * 1e3)
        self._num_drawn += len(tokens)
        return output

    def _apply(self, plan: StepPlan) -> None:
        self._table.release(np.frombuffer(plan.released, np.int32).tolist())
        for new in plan.new:
            self._add(new)
        self._table.append_blocks(plan)

    def _add(self, new: NewRow) -> None:
        self._table.add(new)
        row, params = new.row, new.params
        self._params[row] = params
        self._seed[row] = new.seed % 2**64
        self._choice[row] = new.choice
        self._warm[row] = not params.greedy
        self._needs_model[row] = params.structured_outputs is not None or new.prompt_logprobs >= 0
        self._min_end[row] = new.prompt_len + params.min_tokens

    def _draw(self, inputs: StepInputs) -> Int64s:
        rows, positions = inputs.sampled_rows, inputs.draw_positions
        seen = mix(self._kv.read(inputs))
        own = mix(mix(self._seed[rows] + self._choice[rows]) + positions.astype(np.uint64))
        bits = np.where(self._warm[rows], mix(seen ^ own), seen)
        tokens = (bits % np.uint64(self.vocab_size)).astype(np.int64)
        if self._options.eos >= 0:
            tokens = self._place_eos(bits, tokens, positions >= self._min_end[rows])
        return tokens

    def _place_eos(self, bits: UInt64s, tokens: Int64s, may_end: np.ndarray) -> Int64s:
        """The eos token stands where the bits say so and nowhere else."""
        eos = self._options.eos
        ends = (mix(bits) % np.uint64(self._options.eos_every) == 0) & may_end
        others = np.where(tokens == eos, (eos + 1) % self.vocab_size, tokens)
        return np.where(ends, eos, others)

    def _needing_model(self, row: int) -> RowError:
        guided = self._params[row].structured_outputs is not None
        param = "structured_outputs" if guided else "prompt_logprobs"
        return RowError(row, f"{param}: the simulated device has no model for it", param)

    def _output(self, rows: Int64s, tokens: Int64s, device_ms: float) -> StepOutput:
        numbers = self._num_drawn + 1 + np.arange(len(rows))
        every = self._options.error_row_every
        failed = numbers % every == 0 if every else np.zeros(len(rows), np.bool_)
        errors = tuple(RowError(row, "the simulated device failed this row") for row in rows[failed].tolist())
        if (needs_model := self._needs_model[rows] & ~failed).any():
            errors += tuple(self._needing_model(row) for row in rows[needs_model].tolist())
            failed |= needs_model
        rows, tokens = rows[~failed], tokens[~failed]
        writer = LogprobWriter()
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            self._write_logprobs(writer, self._params[row], token)
        return StepOutput(rows.astype(np.int32), tokens.astype(np.int32), device_ms, writer.columns(), errors)

    def _write_logprobs(self, writer: LogprobWriter, params: SamplingParams, token: int) -> None:
        if params.logprobs is None:
            writer.skip()
            return
        others = [(token + rank) % self.vocab_size for rank in range(params.logprobs)]
        values = [-0.5 * (1 + rank) for rank in range(params.logprobs)]
        writer.add(token, -0.5, 1, others, values)

    def _take_time(self, began: float, inputs: StepInputs) -> None:
        start, count = inputs.start, inputs.num_tokens
        chunks = count > 1
        attended = float((count[chunks] * (start[chunks] + count[chunks] / 2)).sum())
        context = int((start + count).sum())
        seconds = self._options.cost.seconds(len(inputs.rows), len(inputs.positions), context, attended)
        left = began + seconds - time.perf_counter()
        if left > 0:
            time.sleep(left)

    def _break_down(self, inputs: StepInputs) -> None:
        options, step = self._options, self._num_steps - 1
        if options.crash_after and step >= options.crash_after:
            raise SimulatedFaultError(f"told to fail behind step {options.crash_after}")
        poisoned = options.poison_token >= 0 and bool((inputs.token_ids == options.poison_token).any())
        if poisoned:
            os.kill(os.getpid(), signal.SIGABRT)
        if options.kill_after and step >= options.kill_after:
            os.kill(os.getpid(), signal.SIGKILL)
        while options.hang_after and step >= options.hang_after:
            time.sleep(3600)
