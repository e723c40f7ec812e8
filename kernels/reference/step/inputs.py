"""A step's inputs, built from the plan's columns and the permanent rows."""

from typing import NamedTuple

from torch import Tensor


class PlanColumns(NamedTuple):
    """What the host says about a step's R rows; padding rows come last and have no tokens."""

    row: Tensor
    """[R] int32, the permanent row."""
    start: Tensor
    """[R] int32, the position of its first token of this step."""
    query_start: Tensor
    """[R + 1] int32, where its tokens stand among the step's; ascending from 0."""
    ids_at: Tensor
    """[R] int32, where its token ids begin in `ids`, or -1 for the one token that was drawn last."""
    line: Tensor
    """[R] int32, its line among those that draw a token, or -1 for none; lines are 0, 1, 2 ..."""
    ids: Tensor
    """[num_ids] int32, the token ids that the device does not have."""


class StepInputs(NamedTuple):
    """Tensors that a captured step reads, for T tokens, R rows and S lines with padding."""

    token_ids: Tensor
    """[T] int64; 0 for padding, and for a row whose last draw gave no token."""
    positions: Tensor
    """[T] int64; 0 for padding."""
    slots: Tensor
    """[num_groups, T] int64, cache slots by KV group; -1 for padding."""
    seq_lens: Tensor
    """[R] int32, context lengths with this step's tokens; 0 for rows without tokens."""
    rows: Tensor
    """[R] int64, the permanent rows."""
    logit_tokens: Tensor
    """[S] int64, the token whose logits each line takes; 0 for padding."""
    line_rows: Tensor
    """[S] int64, the permanent row of each line; -1 for padding."""
    line_positions: Tensor
    """[S] int64, the position of the token that each line draws; 0 for padding."""


def build_step_inputs(
    plan: PlanColumns, last_token: Tensor, block_tables: Tensor, inputs: StepInputs, *, block_size: int
) -> None:
    """Fills all of `inputs`.

    Args:
        last_token: [num_rows] int32, the token each permanent row drew last.
        block_tables: [num_groups, num_rows, max_blocks] int32.
    """
    num_tokens = int(plan.query_start[-1])
    inputs.token_ids.zero_()
    inputs.positions.zero_()
    inputs.slots.fill_(-1)
    inputs.logit_tokens.zero_()
    inputs.line_rows.fill_(-1)
    inputs.line_positions.zero_()
    inputs.rows.copy_(plan.row)
    counts = plan.query_start.diff().long()
    inputs.seq_lens.copy_((plan.start + counts) * (counts > 0))

    row_of = plan.row.long().repeat_interleave(counts)
    within = row_of.new_tensor(range(num_tokens)) - plan.query_start[:-1].long().repeat_interleave(counts)
    positions = plan.start.long().repeat_interleave(counts) + within
    ids_at = plan.ids_at.long().repeat_interleave(counts)
    given = ids_at >= 0
    tokens = last_token[row_of].long().clamp(min=0)
    tokens[given] = plan.ids[(ids_at + within)[given]].long()
    inputs.token_ids[:num_tokens] = tokens
    inputs.positions[:num_tokens] = positions
    blocks = block_tables[:, row_of, positions // block_size].long()
    inputs.slots[:, :num_tokens] = blocks * block_size + positions % block_size

    drawing = (plan.line >= 0).nonzero().squeeze(1)
    line = plan.line[drawing].long()
    inputs.logit_tokens[line] = plan.query_start[drawing + 1].long() - 1
    inputs.line_rows[line] = plan.row[drawing].long()
    inputs.line_positions[line] = (plan.start.long() + counts)[drawing]
