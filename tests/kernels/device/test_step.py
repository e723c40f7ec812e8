"""Step inputs, row diffs and token commits against their references."""

import pytest
import torch

from octavo.kernels import device as kernels
from octavo.kernels import reference
from octavo.kernels.reference import PlanColumns, StepInputs

NUM_ROWS, MAX_BLOCKS = 12, 40


def clones(tensors):
    return [tensor.clone() for tensor in tensors]


@pytest.mark.parametrize(("count", "capacity"), [(0, 5), (3, 3), (1000, 1500), (20_000, 20_000)])
def test_apply_diff(device, count, capacity):
    state = torch.randint(-(2**31), 2**31, (50_000,), dtype=torch.int32, device=device)
    diff = torch.randint(-(2**31), 2**31, (1 + 2 * capacity,), dtype=torch.int32, device=device)
    diff[0] = count
    diff[1 : 1 + count] = torch.randperm(50_000, device=device)[:count].int()
    expected = state.clone()
    reference.apply_diff(expected, diff)
    kernels.apply_diff(state, diff)
    assert torch.equal(state, expected)


def make_plan(rows, padding_rows, device):
    """Columns for (row, start, number of tokens, ids known?, draws?) tuples and some padding rows."""
    columns = {name: [] for name in ("row", "start", "ids_at", "line")}
    starts, ids, line = [0], [], 0
    for row, start, count, known, draws in rows + [(0, 0, 0, False, False)] * padding_rows:
        columns["row"].append(row)
        columns["start"].append(start)
        columns["ids_at"].append(len(ids) if known else -1)
        columns["line"].append(line if draws else -1)
        line += draws
        starts.append(starts[-1] + count)
        ids += torch.randint(0, 1000, (count,)).tolist() if known else []
    columns |= {"query_start": starts, "ids": [*ids, 7]}
    return PlanColumns(
        **{name: torch.tensor(value, dtype=torch.int32, device=device) for name, value in columns.items()}
    )


def make_inputs(num_tokens, num_rows, num_lines, num_groups, device):
    """Inputs full of what an earlier step left."""
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
    return StepInputs(
        **{
            name: torch.full(
                shape, 99, device=device, dtype=torch.int32 if name == "seq_lens" else torch.int64
            )
            for name, shape in shapes.items()
        }
    )


@pytest.mark.parametrize("num_groups", [1, 2])
@pytest.mark.parametrize(
    ("rows", "padding"),
    [
        ([(3, 7, 1, False, True)], 0),
        ([(3, 7, 1, False, True), (11, 0, 1, False, True), (5, 99, 1, False, True)], 5),
        (
            [
                (2, 0, 300, True, False),
                (4, 63, 1, False, True),
                (9, 5, 60, True, True),
                (1, 8, 1, False, True),
            ],
            2,
        ),
    ],
    ids=["one decode", "decodes", "mixed"],
)
def test_build_step_inputs(device, rows, padding, num_groups):
    plan = make_plan(rows, padding, device)
    last_token = torch.randint(0, 1000, (NUM_ROWS,), dtype=torch.int32, device=device)
    last_token[rows[-1][0]] = reference.NO_TOKEN
    tables = torch.randint(0, 2**28, (num_groups, NUM_ROWS, MAX_BLOCKS), dtype=torch.int32, device=device)
    num_tokens = int(plan.query_start[-1]) + 3 * padding
    num_lines = sum(row[-1] for row in rows) + padding
    expected = make_inputs(num_tokens, len(rows) + padding, num_lines, num_groups, device)
    got = StepInputs(*clones(expected))
    reference.build_step_inputs(plan, last_token, tables, expected, block_size=16)
    kernels.build_step_inputs(plan, last_token, tables, got, block_size=16)
    for name, tensor in expected._asdict().items():
        assert torch.equal(getattr(got, name), tensor), name
    assert int(expected.token_ids.min()) >= 0


@pytest.mark.parametrize("counted", [False, True])
def test_commit_tokens(device, counted):
    num_lines, vocab = 9, 50
    tokens = torch.randint(0, vocab, (num_lines,), device=device)
    tokens[2] = reference.NO_TOKEN
    rows = torch.randperm(NUM_ROWS, device=device)[:num_lines]
    rows[7:] = -1
    positions = torch.randint(0, 1000, (num_lines,), device=device)
    state = [
        torch.randint(0, vocab, shape, dtype=torch.int32, device=device)
        for shape in ((NUM_ROWS,), (NUM_ROWS, 32), (4, vocab))
    ]
    slot = torch.full((NUM_ROWS,), -1, dtype=torch.int32, device=device)
    slot[rows[0]], slot[rows[2]], slot[rows[3]] = 3, 1, 0
    results = []
    for module in (reference, kernels):
        last_token, recent, counts = clones(state)
        extra = {"token_counts": counts, "slot": slot} if counted else {}
        module.commit_tokens(tokens, rows, positions, last_token, recent, **extra)
        results.append((last_token, recent, counts))
    for expected, got in zip(*results, strict=True):
        assert torch.equal(got, expected)
    assert counted != torch.equal(results[0][2], state[2])
