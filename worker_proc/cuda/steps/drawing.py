"""Drawing tokens on the device, for the lines of a step that sample."""

import numpy as np
import torch
from torch import Tensor

from ....kernels import device as kernels
from ....kernels.reference import Logprobs, Penalties, SamplingColumns
from ....protocol.sampling import MAX_LOGPROBS
from ....protocol.steps import NewRow
from ..rows.columns import RowColumns
from ..rows.parameters import has_penalty
from ..rows.token_lists import ListPool
from .sizes import HeadSize
from .tensors import StepBuffers


class Drawing:
    """Parameters of all rows on the device, and buffers for what is drawn.

    A row that has penalties counts its tokens in a line of its own number, so that none is ever refused one;
    all lines together are small beside the weights.
    """

    def __init__(
        self, columns: RowColumns, lists: ListPool, buffers: StepBuffers, *, max_lines: int, vocab_size: int
    ) -> None:
        device = columns.state.device
        self._columns = columns
        self._buffers = buffers
        self._counts = torch.zeros(columns.num_rows, vocab_size, dtype=torch.int32, device=device)
        self._rules = lists.rules()
        self._workspace = kernels.make_sampling_workspace(
            max_lines, vocab_size, pool_size=len(columns.pool), device=device
        )
        self.tokens = torch.full((max_lines,), -1, dtype=torch.int64, device=device)
        num_top = min(MAX_LOGPROBS, vocab_size)
        self.logprobs = Logprobs(
            torch.zeros(max_lines, dtype=torch.float32, device=device),
            torch.zeros(max_lines, dtype=torch.int64, device=device),
            torch.zeros(max_lines, num_top, dtype=torch.float32, device=device),
            torch.zeros(max_lines, num_top, dtype=torch.int64, device=device),
        )
        size = kernels.logprobs_workspace_size(max_lines, vocab_size, num_top)
        self._logprobs_workspace = torch.zeros(size, dtype=torch.float32, device=device)

    def add(self, new: NewRow) -> None:
        """Count the tokens that a row with penalties comes with."""
        if not has_penalty(new.params):
            return
        counts = self._counts[new.row].zero_()
        tokens = torch.from_numpy(np.frombuffer(new.tokens, np.int32).astype(np.int64))
        if counts.is_cuda:
            # Pageable memory would make the host wait for the device.
            tokens = tokens.pin_memory().to(counts.device, non_blocking=True)
        prompt, output = tokens[: new.prompt_len], tokens[new.prompt_len :]
        counts.index_fill_(0, prompt, 1)
        counts.index_add_(0, output, torch.full_like(output, 2, dtype=torch.int32))

    def draw(self, logits: Tensor, size: HeadSize) -> None:
        """Draw a token for each line of `logits` [num_lines, vocab_size], and take it into its row."""
        lines = size.num_lines
        rows, positions = self._buffers.line_rows[:lines], self._buffers.line_positions[:lines]
        tokens = self.tokens[:lines]
        columns = self._select(size)
        kernels.sample(logits, rows, positions, columns, workspace=self._workspace, out=tokens)
        counted = columns.penalties
        kernels.commit_tokens(
            tokens,
            rows,
            positions,
            self._columns.last_token,
            self._columns.recent,
            token_counts=None if counted is None else counted.token_counts,
            slot=None if counted is None else counted.slot,
        )
        if size.logprobs:
            out = Logprobs(*(tensor[:lines] for tensor in self.logprobs))
            num_top = out.top.shape[1]
            kernels.compute_logprobs(logits, tokens, num_top, out=out, workspace=self._logprobs_workspace)

    def _select(self, size: HeadSize) -> SamplingColumns:
        columns = self._columns
        penalties = Penalties(
            self._counts,
            columns["penalty_slot"],
            columns["repetition"],
            columns["frequency"],
            columns["presence"],
        )
        return SamplingColumns(
            temperature=columns["temperature"],
            seed=columns["seed"],
            choice=columns["choice"],
            min_p=columns["min_p"] if size.filtered else None,
            top_k=columns["top_k"] if size.filtered else None,
            top_p=columns["top_p"] if size.filtered else None,
            temperature_last=columns["temperature_last"] if size.filtered else None,
            penalties=penalties if size.ruled else None,
            rules=self._rules if size.ruled else None,
        )
