"""A step's inputs, built from the plan's columns and the permanent rows."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...reference import PlanColumns, StepInputs
from ..checks import check, check_same_device, check_shape

_BLOCK = 256


@triton.jit
def _write_tokens(
    row, start, first, count, ids_at, last_token_ptr, ids_ptr, tables_ptr, token_ids_ptr, positions_ptr,
    slots_ptr, num_tokens, table_stride, group_stride,
    NUM_GROUPS: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Ids, positions and slots of one row's tokens."""
    for begin in range(0, count, BLOCK):
        within = begin + tl.arange(0, BLOCK)
        inside = within < count
        position = start + within
        if ids_at >= 0:
            ids = tl.load(ids_ptr + ids_at + within, mask=inside, other=0)
        else:
            # A row whose last draw gave no token will be ended; until then -1 must not reach a table.
            ids = tl.zeros((BLOCK,), tl.int32) + tl.maximum(tl.load(last_token_ptr + row), 0)
        at = first + within
        tl.store(token_ids_ptr + at, ids.to(tl.int64), mask=inside)
        tl.store(positions_ptr + at, position.to(tl.int64), mask=inside)
        for group in tl.static_range(NUM_GROUPS):
            table = tables_ptr + group * group_stride + row * table_stride
            block = tl.load(table + position // BLOCK_SIZE, mask=inside, other=0).to(tl.int64)
            slot = block * BLOCK_SIZE + position % BLOCK_SIZE
            tl.store(slots_ptr + group * num_tokens + at, slot, mask=inside)


@triton.jit
def _write_padding(
    query_start_ptr, line_ptr, token_ids_ptr, positions_ptr, slots_ptr, logit_tokens_ptr, line_rows_ptr,
    line_positions_ptr, num_rows, num_tokens, num_lines,
    NUM_GROUPS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """What stands behind the last token and the last line."""
    for begin in range(tl.load(query_start_ptr + num_rows), num_tokens, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        inside = at < num_tokens
        nothing = tl.zeros((BLOCK,), tl.int64)
        tl.store(token_ids_ptr + at, nothing, mask=inside)
        tl.store(positions_ptr + at, nothing, mask=inside)
        for group in tl.static_range(NUM_GROUPS):
            tl.store(slots_ptr + group * num_tokens + at, nothing - 1, mask=inside)
    index = tl.arange(0, ROWS)
    lines = tl.load(line_ptr + index, mask=index < num_rows, other=-1)
    for begin in range(tl.max(lines, axis=0) + 1, num_lines, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        inside = at < num_lines
        nothing = tl.zeros((BLOCK,), tl.int64)
        tl.store(logit_tokens_ptr + at, nothing, mask=inside)
        tl.store(line_rows_ptr + at, nothing - 1, mask=inside)
        tl.store(line_positions_ptr + at, nothing, mask=inside)


@triton.jit(do_not_specialize=["num_rows", "num_tokens", "num_lines"])
def _step_inputs_kernel(
    row_ptr, start_ptr, query_start_ptr, ids_at_ptr, line_ptr, ids_ptr, last_token_ptr, tables_ptr,
    token_ids_ptr, positions_ptr, slots_ptr, seq_lens_ptr, rows_ptr, logit_tokens_ptr, line_rows_ptr,
    line_positions_ptr, num_rows, num_tokens, num_lines, table_stride, group_stride,
    NUM_GROUPS: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Token t of row r: position start_r + t, slot table[position / BLOCK_SIZE] * BLOCK_SIZE + the rest.

    Grid (num_rows + 1,): a program fills what belongs to one row, the last one all padding.
    """
    index = tl.program_id(0)
    if index == num_rows:
        _write_padding(
            query_start_ptr, line_ptr, token_ids_ptr, positions_ptr, slots_ptr, logit_tokens_ptr,
            line_rows_ptr, line_positions_ptr, num_rows, num_tokens, num_lines, NUM_GROUPS, BLOCK, ROWS,
        )  # fmt: skip
    else:
        row = tl.load(row_ptr + index).to(tl.int64)
        start = tl.load(start_ptr + index)
        first = tl.load(query_start_ptr + index)
        end = tl.load(query_start_ptr + index + 1)
        count = end - first
        tl.store(rows_ptr + index, row)
        tl.store(seq_lens_ptr + index, tl.where(count > 0, start + count, 0))
        line = tl.load(line_ptr + index)
        if line >= 0:
            tl.store(logit_tokens_ptr + line, (end - 1).to(tl.int64))
            tl.store(line_rows_ptr + line, row)
            tl.store(line_positions_ptr + line, (start + count).to(tl.int64))
        _write_tokens(
            row, start, first, count, tl.load(ids_at_ptr + index), last_token_ptr, ids_ptr, tables_ptr,
            token_ids_ptr, positions_ptr, slots_ptr, num_tokens, table_stride, group_stride,
            NUM_GROUPS, BLOCK_SIZE, BLOCK,
        )  # fmt: skip


def build_step_inputs(
    plan: PlanColumns, last_token: Tensor, block_tables: Tensor, inputs: StepInputs, *, block_size: int
) -> None:
    """See `reference.build_step_inputs`. Row numbers are not checked against the tables."""
    num_rows, num_tokens, num_lines = plan.row.shape[0], inputs.token_ids.shape[0], inputs.line_rows.shape[0]
    num_groups = block_tables.shape[0]
    check("block_tables", block_tables, dim=3, dtype=torch.int32)
    check("last_token", last_token, dim=1, dtype=torch.int32)
    for name, tensor in plan._asdict().items():
        check(name, tensor, dim=1, dtype=torch.int32)
    check_shape("query_start", plan.query_start, (num_rows + 1,))
    shapes = {
        "token_ids": (num_tokens,),
        "positions": (num_tokens,),
        "slots": (num_groups, num_tokens),
        "seq_lens": (num_rows,),
        "rows": (num_rows,),
        "logit_tokens": (num_lines,),
        "line_rows": (num_lines,),
        "line_positions": (num_lines,),
    }
    for name, tensor in inputs._asdict().items():
        check(name, tensor, dtype=torch.int32 if name == "seq_lens" else torch.int64, contiguous=True)
        check_shape(name, tensor, shapes[name])
    check_same_device(last_token=last_token, block_tables=block_tables, ids=plan.ids, slots=inputs.slots)
    _step_inputs_kernel[(num_rows + 1,)](
        *plan,
        last_token,
        block_tables,
        *inputs,
        num_rows,
        num_tokens,
        num_lines,
        block_tables.stride(1),
        block_tables.stride(0),
        NUM_GROUPS=num_groups,
        BLOCK_SIZE=block_size,
        BLOCK=_BLOCK,
        ROWS=triton.next_power_of_2(num_rows),
        num_warps=4,
    )
